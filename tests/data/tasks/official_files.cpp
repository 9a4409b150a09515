#include "tests/data/tasks/official_files.hpp"

#ifdef SKYTAPE_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

#include <fstream>

#include "data/files/png.hpp"
#include "tensor/core/error.hpp"
#include "tests/support/doctest.hpp"

namespace skytape::data::synthetic {

Files listops_files(int examples) {
  Files files;
  for (const char* split : {"train", "val", "test"}) {
    std::string text = "Source\tTarget\r\n";
    for (int i = 0; i < examples; ++i) {
      const std::string a = std::to_string(i % 10), b = std::to_string((i + 3) % 10);
      const std::string sum = std::to_string((2 * i + 3) % 10);
      text += "( ( ( [SM " + a + " ) " + b + " ) ] )\t" + sum + "\r\n";
    }
    files.emplace_back("listops-1000/basic_" + std::string(split) + ".tsv", text);
  }
  return files;
}

Files review_files(int per_split) {
  Files files;
  for (const std::string split : {"train", "test"}) {
    for (int id = 0; id < per_split; ++id) {
      const bool good = id % 2;
      files.emplace_back("aclImdb/" + split + (good ? "/pos/" : "/neg/") + std::to_string(id) +
                             (good ? "_8.txt" : "_2.txt"),
                         split + " review number " + std::to_string(id) + "\xc3\xa9<br />");
    }
    files.emplace_back("aclImdb/" + split + "/labeledBow.feat", "not a review");
  }
  files.emplace_back("aclImdb/train/unsup/0_0.txt", "unlabelled");
  return files;
}

Files pair_files(int pairs) {
  Files files;
  for (const char* split : {"train", "eval", "test"}) {
    std::string text;
    for (int i = 0; i < pairs; ++i) {
      const std::string number = std::to_string(i);
      text += std::string(i % 2 ? "1.0" : "0.0") + "\tP05-" + number + "\tW04-" + number +
              "\tA \"paper\" on " + number + "\tAnother one " + number + "\n";
    }
    files.emplace_back("tsv_data/new_aan_pairs." + std::string(split) + ".tsv", text);
  }
  return files;
}

Files pathfinder_files(int images) {
  const std::string folder = "pathfinder32/curv_contour_length_14/";
  Files files;
  std::string metadata;
  for (int i = 0; i < images; ++i) {
    const std::string name = "sample_" + std::to_string(i) + ".png";
    std::vector<uint8_t> pixels(32 * 32);
    for (size_t p = 0; p < pixels.size(); ++p) pixels[p] = static_cast<uint8_t>(p * (i + 7) % 251);
    files.emplace_back(folder + "imgs/0/" + name, encode_png(pixels, 32, 32));
    metadata += "imgs/0 " + name + " " + std::to_string(i) + " " + std::to_string(i % 2) +
                " 1.0 14 4 2 0.5 1 1\n";
  }
  files.emplace_back(folder + "metadata/0.npy", metadata);
  return files;
}

Files image_files(int per_file) {
  Files files;
  for (int i = 1; i <= 5; ++i) {
    files.emplace_back("cifar-10-batches-bin/data_batch_" + std::to_string(i) + ".bin",
                       image_records(per_file, i));
  }
  files.emplace_back("cifar-10-batches-bin/test_batch.bin", image_records(per_file, 0));
  return files;
}

std::string image_records(int count, int first_label) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    const int label = (first_label + i) % 10;
    bytes += static_cast<char>(label);
    for (int plane = 1; plane <= 3; ++plane)
      bytes += std::string(1024, static_cast<char>(20 * label / plane));
  }
  return bytes;
}

#ifdef SKYTAPE_HAVE_ARCHIVE
void write_tar(const std::filesystem::path& path, const Files& files) {
  archive* out = archive_write_new();
  archive_write_add_filter_gzip(out);
  archive_write_set_format_ustar(out);
  REQUIRE(archive_write_open_filename(out, path.c_str()) == ARCHIVE_OK);
  for (const auto& [name, bytes] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_write_header(out, entry);
    archive_write_data(out, bytes.data(), bytes.size());
    archive_entry_free(entry);
  }
  archive_write_free(out);
}
#else
void write_tar(const std::filesystem::path& path, const Files&) {
  throw Error(path.string() + ": this build has no libarchive, which writes archives of the tests");
}
#endif

void write_files(const std::filesystem::path& folder, const Files& files) {
  for (const auto& [name, bytes] : files) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
}

}  // namespace skytape::data::synthetic

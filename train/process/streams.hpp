// The three standard streams, which whoever starts the program may have closed or taken away.
#pragma once

#include <string_view>

namespace skytape::train {

/// Opens /dev/null as each of descriptors 0 to 2 that is closed: the next file that the program
/// opens would get its number, and then what is said to people. For the start of main.
void open_standard_streams();

/// Writes the text to standard error immediately. Text that cannot arrive there is lost, and no
/// reason to stop: the terminal may be gone, and the disk of a log full.
void write_stderr(std::string_view text);

}  // namespace skytape::train

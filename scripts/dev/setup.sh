# what: installs the packages that building and testing need
#help
#help Usage: ./dev setup
#help
#help Installs what is missing of scripts/packages-debian.txt, with apt, as root or by sudo. Does nothing if nothing is
#help missing. On a system without apt it prints the list and fails. Then gets scripts/packages-python.txt from PyPI, if it can.
setup
say "everything needed is installed"

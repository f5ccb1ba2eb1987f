# what: installs the packages that building and testing need
#help
#help Usage: ./dev setup
#help
#help Installs what is missing of the list for this system, as root or by sudo: scripts/packages-debian.txt and packages-ubuntu-24.04.txt with apt,
#help packages-rocky-9.txt with dnf. Does nothing if nothing is missing. On a system without either it prints Debian's list and fails. Then
#help gets scripts/packages-python.txt from PyPI, if it can.
setup
say "everything needed is installed"

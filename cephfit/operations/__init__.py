"""Operations that the command line, the web page and the Python API share, in folders by subject."""

from sluice import main

main()

#!/bin/sh
# A substitute for mysql:5.7: MariaDB, with the variables of the published image and the arguments of the server.
set -eu
data=/var/lib/mysql
mkdir -p "$data" /run/mysqld /tmp
if [ ! -d "$data/mysql" ]; then
  {
    echo 'CREATE DATABASE mysql;'
    echo 'USE mysql;'
    cat /usr/share/mysql/mysql_system_tables.sql /usr/share/mysql/mysql_performance_tables.sql \
      /usr/share/mysql/mysql_system_tables_data.sql
    echo "FLUSH PRIVILEGES;
      ALTER USER root@localhost IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
      CREATE DATABASE \`$MYSQL_DATABASE\`;
      CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
      GRANT ALL ON \`$MYSQL_DATABASE\`.* TO '$MYSQL_USER'@'%';"
  } | mariadbd --no-defaults --bootstrap --user=root --datadir="$data" --skip-log-bin
fi
exec mariadbd --no-defaults --user=root --datadir="$data" --bind-address=0.0.0.0 --skip-name-resolve \
  --innodb-buffer-pool-size=16M --socket=/run/mysqld/mysqld.sock "$@"

// Package mysql reads from and writes to MySQL 8 and newer and MariaDB 10.6 and newer.
package mysql

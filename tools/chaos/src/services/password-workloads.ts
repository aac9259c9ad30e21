import { execFileSync } from 'node:child_process';
import { asNobody, makeDirectoryOfNobody, POSTGRES } from './postgres.js';

/** Programs that the change of the password needs. */
export const PASSWORD_PROGRAMS = ['psql', POSTGRES.server, POSTGRES.initdb, 'setpriv'];

/**
 * Secret of server and clients: the password of each role in the key of its name, and in the key
 * `role` the role that clients use.
 */
export const SECRET = 'database-password';
/** Roles of the clients. */
export const ROLES = ['app_a', 'app_b'] as const;
/** Role of a client. */
export type PasswordRole = (typeof ROLES)[number];

/**
 * Starts PostgreSQL with the passwords in the files of the secret, one for each role. On SIGHUP the
 * script sets them again, without a restart. No password is in an argument of a program.
 */
export const SERVER_SCRIPT = `set -u
cd /
secret=$CLOUDLESS_SECRETS_DIR/${SECRET}
run() { exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
change() {
  for role in ${ROLES.join(' ')}; do
    printf "ALTER ROLE %s PASSWORD '%s';\\n" $role "$(cat "$secret/$role")"
  done
}
changed=
trap 'changed=yes' HUP
change | run ${POSTGRES.server} --single -D "$DATA" postgres >/dev/null || exit 1
run ${POSTGRES.server} -D "$DATA" -h 127.0.0.1 -p "$PORT" -k "$DATA" &
server=$!
trap 'kill -INT $server' TERM
while kill -0 $server 2>/dev/null; do
  if [ -n "$changed" ]; then
    changed=
    change | run psql -qX -v ON_ERROR_STOP=1 -h "$DATA" -p "$PORT" -U postgres postgres
  else
    wait $server
  fi
done`;

/**
 * Opens one connection after the other with the role and password of the secret, and writes what
 * became of each attempt to a file.
 */
export const CLIENT_SCRIPT = `secret=$CLOUDLESS_SECRETS_DIR/${SECRET}
while :; do
  began=$(date +%s%3N)
  role=$(cat "$secret/role")
  password=$(cat "$secret/$role")
  answer=$(PGPASSWORD=$password psql -h "$ADDRESS" -U $role -AtXc "select 'answered'" postgres 2>&1 | tr '\\n' ' ')
  echo "$began \${password%%-*} $answer" >> "$RESULTS"
  sleep 0.02
done`;
/** Clients that connect all the time. */
export const CLIENTS = 3;

/** Makes a database that asks TCP clients for a password, with the roles of the clients. */
export function makeDatabase(data: string): void {
  makeDirectoryOfNobody(data);
  const [program = '', ...args] = asNobody(POSTGRES.initdb, '-D', data, '-U', 'postgres');
  const methods = ['--auth-local=trust', '--auth-host=scram-sha-256', '--no-sync'];
  execFileSync(program, [...args, ...methods], { stdio: ['ignore', 'ignore', 'pipe'], cwd: '/' });
  const [single = '', ...rest] = asNobody(POSTGRES.server, '--single', '-D', data, 'postgres');
  execFileSync(single, rest, {
    input: ROLES.map((role) => `CREATE ROLE ${role} LOGIN;\n`).join(''),
    stdio: ['pipe', 'ignore', 'pipe'],
    cwd: '/',
  });
}

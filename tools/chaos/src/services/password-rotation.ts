import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Reload_Mode as ReloadMode, Rollout_Strategy as Strategy } from '@cloudless/api';
import { asNobody, makeDirectoryOfNobody, POSTGRES } from './postgres.js';
import { REFUSED, judgeAttempts, parseAttempts, type Attempt } from './password-attempts.js';
import { requireItem, type ServiceCluster, type Spec } from './service-cluster.js';
import { findSessionFault } from './session-answers.js';

/** Programs that the change of the password needs. */
export const PASSWORD_PROGRAMS = ['psql', POSTGRES.server, POSTGRES.initdb, 'setpriv'];

const DATABASE = 'database';
const CLIENT = 'database-client';
const SECRET = 'database-password';
const PORT = 5_432;
/** Answered attempts in a row after which clients and server have the new password. */
const SETTLED_ATTEMPTS = 20;

/**
 * Starts PostgreSQL with the password in the file of the secret. On SIGHUP the script sets the password
 * again, without a restart. The password is in no argument of a program.
 */
const SERVER_SCRIPT = `set -u
cd /
file=$CLOUDLESS_SECRETS_DIR/${SECRET}/password
run() { exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
change() { printf "ALTER ROLE app PASSWORD '%s';\\n" "$(cat "$file")"; }
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

/** Opens one connection after the other, and writes what became of each attempt to a file. */
const CLIENT_SCRIPT = `while :; do
  began=$(date +%s%3N)
  password=$(cat "$CLOUDLESS_SECRETS_DIR/${SECRET}/password")
  answer=$(PGPASSWORD=$password psql -h "$ADDRESS" -U app -AtXc "select 'answered'" postgres 2>&1 | tr '\\n' ' ')
  echo "$began \${password%%-*} $answer" >> "$RESULTS"
  sleep 0.02
done`;
/** Clients that connect all the time. */
const CLIENTS = 3;

/** One way in which the server learns of a new password. */
interface Rotation {
  readonly name: string;
  readonly reload: ReloadMode;
  /** Failures of attempts that this way allows besides refused passwords; absent: none. */
  readonly allowed?: RegExp;
  /** A session that was open before goes on. */
  readonly keepsSessions: boolean;
}

/** Errors of connections while the server restarts. */
const RESTARTED =
  /refused|closed the connection|terminating connection|reset by peer|shutting down|starting up/;
const ROTATIONS: readonly Rotation[] = [
  { name: 'by signal', reload: ReloadMode.SIGNAL, keepsSessions: true },
  {
    name: 'by restart',
    reload: ReloadMode.RESTART,
    allowed: RESTARTED,
    keepsSessions: false,
  },
];

/** PostgreSQL, whose password is a secret, and clients that use the password. */
class PasswordScene {
  private readonly results: string;
  private readonly data: string;
  private address = '';
  /** Number of the password that the secret has. */
  private passwords = 0;

  constructor(private readonly cluster: ServiceCluster) {
    this.results = join(cluster.world.directory, 'database-results');
    this.data = join(cluster.world.directory, 'database');
  }

  async start(): Promise<void> {
    const { cluster, data } = this;
    makeDatabase(data);
    await this.setPassword('create', 1);
    const first = requireItem(cluster.servers[0]).name;
    await cluster.ctl('node', 'label', first, `node=${first}`);
    await cluster.create(DATABASE, {
      command: ['sh', '-c', SERVER_SCRIPT],
      env: { DATA: data },
      ports: [{ name: 'main', containerPort: PORT }],
      expose: [{ name: 'main', port: PORT }],
      rollout: { strategy: Strategy.RECREATE, minReadyDuration: durationFromMs(0) },
      placement: { nodeSelector: { node: first } },
      secrets: useSecret(ReloadMode.SIGNAL),
    });
    this.address = await cluster.waitForAddress(DATABASE, PORT);
    await cluster.create(CLIENT, {
      command: ['sh', '-c', CLIENT_SCRIPT],
      env: { ADDRESS: this.address, RESULTS: this.results },
      replicas: CLIENTS,
      placement: { nodeSelector: { role: 'client' } },
      rollout: { minReadyDuration: durationFromMs(0) },
      secrets: useSecret(ReloadMode.NONE),
    });
    await this.waitUntilAnswered();
  }

  /** Changes the password once, and judges what clients saw. */
  async rotate({ reload, allowed, keepsSessions }: Rotation): Promise<string> {
    const { cluster } = this;
    const before = await this.useReload(reload);
    await this.waitUntilAnswered();
    const stop = join(cluster.world.directory, `stop-session-${this.passwords}`);
    const session = this.startSession(stop);
    await session.waitForLine((line) => line.startsWith('5 '));
    const seen = this.attempts().length;
    const old = this.password;
    const beganMs = Date.now();
    await this.setPassword('update', this.passwords + 1);
    const attempts = (await this.waitUntilAnswered()).slice(seen);
    writeFileSync(stop, '');
    await session.exited;
    const shown = describeAttempts(attempts, `v${this.passwords}`, beganMs, allowed);
    if (keepsSessions) requireNone(findSessionFault(session.lines));
    const after = await cluster.waitUntilSettled(DATABASE);
    const restarts = after.status?.replicas[0]?.restarts ?? -1;
    const isReplaced = after.status?.replicas[0]?.id !== before;
    if (isReplaced === keepsSessions || restarts !== 0)
      throw new Error(`replica replaced: ${isReplaced}, restarts: ${restarts}`);
    const refusal = await this.query(old);
    if (!REFUSED.test(refusal)) throw new Error(`the old password was answered: ${refusal}`);
    const kept = keepsSessions
      ? `${session.lines.length} queries of one open session`
      : 'one restart';
    return `${shown}; ${kept}; the old password is refused`;
  }

  /**
   * Undoes the last rotation: the earlier password is in force again at once. Clients that have the
   * newest values are refused until the secret gets the earlier password again.
   */
  async undo(): Promise<string> {
    const [newest, earlier] = [this.password, formatPassword(this.passwords - 1)];
    const seen = this.attempts().length;
    const beganMs = Date.now();
    await this.cluster.ctl('rollout', 'undo', DATABASE, '--yes', '--wait');
    const answers = [await this.query(earlier), await this.query(newest)];
    if (answers[0] !== 'answered' || !REFUSED.test(answers[1] ?? ''))
      throw new Error(`after the undo: ${answers.join(' | ')}`);
    await this.setPassword('update', this.passwords - 1);
    await this.cluster.waitUntilSettled(DATABASE);
    const attempts = (await this.waitUntilAnswered()).slice(seen);
    const shown = describeAttempts(attempts, `v${this.passwords}`, beganMs, RESTARTED);
    return `the earlier password is answered, the newer one is refused; with the secret set back ${shown}`;
  }

  private get password(): string {
    return formatPassword(this.passwords);
  }

  /** Creates the secret, or gives it new values: the password of this number. */
  private async setPassword(action: 'create' | 'update', password: number): Promise<void> {
    this.passwords = password;
    const file = join(this.cluster.world.directory, 'password');
    writeFileSync(file, this.password, { mode: 0o600 });
    const audience = action === 'create' ? ['--audience', 'workload/*'] : ['--yes'];
    const values = ['--from-file', `password=${file}`];
    await this.cluster.ctl('secret', action, SECRET, ...values, ...audience);
  }

  /** Returns the id of the replica of the server, whose secret has this way of reloading. */
  private async useReload(reload: ReloadMode): Promise<string> {
    await this.cluster.world.call(
      (client, options) =>
        client.updateWorkload(
          {
            name: DATABASE,
            spec: { secrets: useSecret(reload) },
            updateMask: { paths: ['secrets'] },
          },
          options,
        ),
      CALL_WITHIN_MS,
    );
    const { status } = await this.cluster.waitUntilSettled(DATABASE);
    return requireItem(status?.replicas[0]).id;
  }

  private startSession(stop: string) {
    const query = 'select $n, pg_backend_pid();';
    const loop = `n=0; while [ ! -e ${stop} ]; do n=$((n+1)); echo "${query}"; sleep 0.1; done`;
    const psql = `psql -h ${this.address} -U app -AtX -F " " -v ON_ERROR_STOP=1 postgres`;
    return this.cluster.client.machine.start(`(${loop}) | ${psql}`, { PGPASSWORD: this.password });
  }

  /** Connects with a password, and returns the answer or the error. */
  private async query(password: string): Promise<string> {
    const command = `psql -h ${this.address} -U app -AtXc "select 'answered'" postgres 2>&1`;
    const { stdout } = await this.cluster.client.machine.run(command, { PGPASSWORD: password });
    return stdout.trim();
  }

  private attempts(): readonly Attempt[] {
    return existsSync(this.results) ? parseAttempts(readFileSync(this.results, 'utf8')) : [];
  }

  /** Waits until the newest attempts were all answered, with the newest password. */
  private async waitUntilAnswered(): Promise<readonly Attempt[]> {
    const version = `v${this.passwords}`;
    let attempts: readonly Attempt[] = [];
    await this.cluster.until(async () => {
      attempts = this.attempts();
      const newest = attempts.slice(-SETTLED_ATTEMPTS);
      return (
        newest.length === SETTLED_ATTEMPTS &&
        newest.every((attempt) => attempt.version === version && attempt.error === undefined)
      );
    }, `clients are not answered with password ${version}`);
    return attempts;
  }
}

/** Time for a change, with its repetitions, milliseconds. */
const CALL_WITHIN_MS = 10_000;

const formatPassword = (count: number): string => `v${count}-correct-horse-${count}`;

const useSecret = (mode: ReloadMode): NonNullable<Spec['secrets']> => [
  { name: SECRET, reload: { mode } },
];

/**
 * Returns the counts and times of the attempts during a change.
 * @param version - Version of the new password.
 * @param beganMs - Time of the wall clock before the change, milliseconds.
 * @param allowed - As of {@link judgeAttempts}.
 */
function describeAttempts(
  attempts: readonly Attempt[],
  version: string,
  beganMs: number,
  allowed: RegExp | undefined,
): string {
  const { attempts: count, refused, failed, failingMs } = judgeAttempts(attempts, allowed);
  const first = attempts.find((each) => each.version === version && each.error === undefined);
  return [
    `${count} connections: ${count - refused - failed} answered`,
    `${refused} refused for the password, ${failed} failed otherwise, within ${failingMs} ms`,
    `new password answered after ${requireItem(first).atMs - beganMs} ms`,
  ].join(', ');
}

function requireNone(fault: string | undefined): void {
  if (fault !== undefined) throw new Error(fault);
}

/** Makes a database that asks TCP clients for a password, with the role of the clients. */
function makeDatabase(data: string): void {
  makeDirectoryOfNobody(data);
  const [program = '', ...args] = asNobody(POSTGRES.initdb, '-D', data, '-U', 'postgres');
  const methods = ['--auth-local=trust', '--auth-host=scram-sha-256', '--no-sync'];
  execFileSync(program, [...args, ...methods], { stdio: ['ignore', 'ignore', 'pipe'], cwd: '/' });
  const [single = '', ...rest] = asNobody(POSTGRES.server, '--single', '-D', data, 'postgres');
  execFileSync(single, rest, {
    input: 'CREATE ROLE app LOGIN;\n',
    stdio: ['pipe', 'ignore', 'pipe'],
    cwd: '/',
  });
}

/**
 * Changes the password of PostgreSQL by a signal and by a restart while clients connect with it, then
 * undoes the last change.
 * @returns Violations, as texts. Empty: all checks held.
 */
export async function rotatePasswords(
  cluster: ServiceCluster,
  print: (line: string) => void,
): Promise<readonly string[]> {
  const scene = new PasswordScene(cluster);
  const violations: string[] = [];
  const check = async (name: string, run: () => Promise<string>): Promise<void> => {
    try {
      print(`ok   password ${name}: ${await run()}`);
    } catch (reason) {
      print(`FAIL password ${name}: VIOLATION: ${String(reason)}`);
      violations.push(`password ${name}: ${String(reason)}`);
    }
  };
  await scene.start();
  for (const rotation of ROTATIONS) await check(rotation.name, () => scene.rotate(rotation));
  await check('undo', () => scene.undo());
  return violations;
}

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { durationFromMs } from '@bufbuild/protobuf/wkt';
import { Reload_Mode as ReloadMode, Rollout_Strategy as Strategy } from '@cloudless/api';
import type { RunningProgram } from '@cloudless/e2e';
import { requireItem } from '../require-item.js';
import {
  REFUSED,
  judgeAttempts,
  parseAttempts,
  type PasswordAttempt,
} from './password-attempts.js';
import {
  CLIENTS,
  CLIENT_SCRIPT,
  ROLES,
  SECRET,
  SERVER_SCRIPT,
  makeDatabase,
  type PasswordRole,
} from './password-workloads.js';
import type { ServiceCluster, Spec } from './service-cluster.js';
import { findSessionFault, formatSession } from './session-answers.js';

const DATABASE = 'database';
const CLIENT = 'database-client';
const PORT = 5_432;
/** Answered attempts in a row after which clients and server have the new password. */
const SETTLED_ATTEMPTS = 20;

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
  /** Role that clients use. */
  private role: PasswordRole = ROLES[0];
  /** Number of the password that clients use. */
  private passwords = 1;

  constructor(private readonly cluster: ServiceCluster) {
    this.results = join(cluster.world.directory, 'database-results');
    this.data = join(cluster.world.directory, 'database');
  }

  async start(): Promise<void> {
    const { cluster, data } = this;
    makeDatabase(data);
    const roles = Object.fromEntries(ROLES.map((role) => [role, this.password]));
    await this.writeSecret('create', { ...roles, role: this.role });
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
    const seen = this.readAttempts().length;
    const old = this.password;
    const beganMs = Date.now();
    await this.setPassword(this.passwords + 1);
    const attempts = (await this.waitUntilAnswered()).slice(seen);
    writeFileSync(stop, '');
    await session.exited;
    const shown = describeAttempts(attempts, `v${this.passwords}`, beganMs, allowed);
    if (keepsSessions) requireNone(findSessionFault(session.lines));
    const after = await cluster.waitUntilSettled(DATABASE);
    const { restarts = -1, failedStarts = 0 } = after.status?.replicas[0] ?? {};
    const isReplaced = after.status?.replicas[0]?.id !== before;
    if (isReplaced === keepsSessions || restarts !== 0 || failedStarts !== 0)
      throw new Error(
        `replica replaced: ${isReplaced}, restarts: ${restarts}, failed starts: ${failedStarts}`,
      );
    const refusal = await this.query(old);
    if (!REFUSED.test(refusal)) throw new Error(`the old password was answered: ${refusal}`);
    const kept = keepsSessions
      ? `${session.lines.length} queries of one open session`
      : 'one restart';
    return `${shown}; ${kept}; the old password is refused`;
  }

  /**
   * Gives the other role a new password, lets clients use that role when the server answers it, and
   * ends with a new password of the former role: no connection may fail.
   */
  async rotateByRoles(): Promise<string> {
    await this.useReload(ReloadMode.SIGNAL);
    await this.waitUntilAnswered();
    const seen = this.readAttempts().length;
    const beganMs = Date.now();
    const former = { role: this.role, password: this.password };
    const role = requireItem(ROLES.find((each) => each !== former.role));
    const password = formatPassword(this.passwords + 1);
    await this.writeSecret('update', { [role]: password });
    await this.waitForAnswer(role, password, /^answered$/);
    [this.role, this.passwords] = [role, this.passwords + 1];
    await this.writeSecret('update', { role });
    await this.waitUntilAnswered();
    await this.writeSecret('update', { [former.role]: password });
    await this.waitForAnswer(former.role, former.password, REFUSED);
    const attempts = (await this.waitUntilAnswered()).slice(seen);
    const { refused, failed } = judgeAttempts(attempts);
    if (refused + failed > 0) throw new Error(`${refused + failed} connections failed`);
    return `${describeAttempts(attempts, `v${this.passwords}`, beganMs)}; the old password is refused`;
  }

  /**
   * Undoes the last rotation: the earlier password is in force again at once. Clients that have the
   * newest values are refused until the secret gets the earlier password again.
   */
  async undo(): Promise<string> {
    const [newest, earlier] = [this.password, formatPassword(this.passwords - 1)];
    const seen = this.readAttempts().length;
    const beganMs = Date.now();
    await this.cluster.ctl('rollout', 'undo', DATABASE, '--yes', '--wait');
    const answers = [await this.query(earlier), await this.query(newest)];
    if (answers[0] !== 'answered' || !REFUSED.test(answers[1] ?? ''))
      throw new Error(`after the undo: ${answers.join(' | ')}`);
    await this.setPassword(this.passwords - 1);
    await this.cluster.waitUntilSettled(DATABASE);
    const attempts = (await this.waitUntilAnswered()).slice(seen);
    const shown = describeAttempts(attempts, `v${this.passwords}`, beganMs, RESTARTED);
    return `the earlier password is answered, the newer one is refused; with the secret set back ${shown}`;
  }

  private get password(): string {
    return formatPassword(this.passwords);
  }

  /** Gives the role of the clients another password: that of this number. */
  private async setPassword(password: number): Promise<void> {
    this.passwords = password;
    await this.writeSecret('update', { [this.role]: this.password });
  }

  /** Creates the secret, or changes some of its values. */
  private async writeSecret(
    action: 'create' | 'update',
    values: Readonly<Partial<Record<PasswordRole | 'role', string>>>,
  ): Promise<void> {
    const flags = Object.entries(values).flatMap(([key, value]) => {
      const file = join(this.cluster.world.directory, `secret-${key}`);
      writeFileSync(file, value, { mode: 0o600 });
      return ['--from-file', `${key}=${file}`];
    });
    const more = action === 'create' ? ['--audience', 'workload/*'] : ['--yes'];
    await this.cluster.ctl('secret', action, SECRET, ...flags, ...more);
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

  /** Starts a session that ends when the file `stop` exists. */
  private startSession(stop: string): RunningProgram {
    const command = formatSession(this.address, this.role, stop);
    return this.cluster.client.machine.start(command, { PGPASSWORD: this.password });
  }

  /** Connects with a password, and returns the answer or the error. */
  private async query(password: string, role = this.role): Promise<string> {
    const command = `psql -h ${this.address} -U ${role} -AtXc "select 'answered'" postgres 2>&1`;
    const { stdout } = await this.cluster.client.machine.run(command, { PGPASSWORD: password });
    return stdout.trim();
  }

  private async waitForAnswer(role: PasswordRole, password: string, wanted: RegExp): Promise<void> {
    await this.cluster.waitUntil(
      async () => wanted.test(await this.query(password, role)),
      `the answer for ${role} is not ${String(wanted)}`,
    );
  }

  private readAttempts(): readonly PasswordAttempt[] {
    return existsSync(this.results) ? parseAttempts(readFileSync(this.results, 'utf8')) : [];
  }

  /** Waits until the newest attempts were all answered, with the newest password. */
  private async waitUntilAnswered(): Promise<readonly PasswordAttempt[]> {
    const version = `v${this.passwords}`;
    let attempts: readonly PasswordAttempt[] = [];
    await this.cluster.waitUntil(async () => {
      attempts = this.readAttempts();
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
  attempts: readonly PasswordAttempt[],
  version: string,
  beganMs: number,
  allowed?: RegExp,
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

/**
 * Changes the password of PostgreSQL with two roles, by a signal and by a restart while clients connect
 * with it, then undoes the last change.
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
  await check('with two roles', () => scene.rotateByRoles());
  for (const rotation of ROTATIONS) await check(rotation.name, () => scene.rotate(rotation));
  await check('undo', () => scene.undo());
  return violations;
}

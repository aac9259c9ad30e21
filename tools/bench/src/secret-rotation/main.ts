// A rotation of the master key of secrets under SIGKILL: a coordinator with 1 000 secrets is killed
// at every step of rotations, 20 times, and started again. After each kill, and at the end, all
// values must be readable and equal; at the end, nothing may be left under an older key. Also
// measures a rotation without kills. --secrets N, --kills N; --inject swapped-value | lost-value |
// old-key damages the state before the last check, which must then find a violation.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { SecretsClient } from '@cloudless/api';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { readCpuSeconds } from '../process-figures.js';
import { printReport } from '../report.js';
import { Violations } from '../violations.js';
import {
  VALUE_KEY,
  checkReadable,
  checkRotated,
  countRemaining,
  findMoment,
  type RotationMoment,
} from './check-secrets.js';
import { SecretsCoordinator, type CoordinatorFiles } from './coordinator.js';
import { createTrigger, planKills, type KillPoint } from './kill-plan.js';
import {
  INJECTIONS,
  injectViolation,
  readStoredSecrets,
  type StoredSecrets,
} from './stored-secrets.js';

/** Namespaces of the secrets. Changes of secrets in one namespace run one after the other. */
const NAMESPACES = 16;
/** Moments that a run must have met. */
const MOMENTS: readonly RotationMoment[] = ['pending', 'active', 'middle', 'unused'];
/** Kills beyond the wanted number, for moments that were missed. */
const SPARE_KILLS = 20;

const { values: flags } = parseArgs({
  options: {
    secrets: { type: 'string', default: '1000' },
    kills: { type: 'string', default: '20' },
    inject: { type: 'string' },
  },
});
const secretCount = Number(flags.secrets);
const killCount = Number(flags.kills);
const violations = new Violations();
const log = (text: string): void =>
  void process.stderr.write(`${new Date().toISOString()} ${text}\n`);

/** The values of the secrets, by `<namespace>/<name>`. */
const expected = new Map<string, string>();

/** Creates the secrets, those of each namespace one after the other. */
async function createSecrets(client: SecretsClient): Promise<void> {
  const create = async (namespace: string, first: number): Promise<void> => {
    for (let index = first; index < secretCount; index += NAMESPACES) {
      const name = `secret-${index}`;
      const value = `value of ${name} ${Buffer.from(systemRandom.bytes(12)).toString('hex')}`;
      const data = { [VALUE_KEY]: Buffer.from(value) };
      await client.createSecret({ namespace, name, data, audiences: ['workload/*'] });
      expected.set(`${namespace}/${name}`, value);
    }
  };
  await Promise.all(
    Array.from({ length: NAMESPACES }, (_none, index) => create(`namespace-${index}`, index)),
  );
}

/** Rotates without a kill, and returns the figures. */
async function measure(coordinator: SecretsCoordinator, client: SecretsClient) {
  const startedAt = systemClock.now();
  const cpuBefore = readCpuSeconds(coordinator.pid);
  const answer = await client.rotateMasterKey({ reEncryptAll: true });
  const cpuSeconds = readCpuSeconds(coordinator.pid) - cpuBefore;
  violations.check(
    Number(answer.reEncrypted) === secretCount && answer.remaining === 0n && answer.began,
    `a rotation without kills encrypted ${answer.reEncrypted} versions again, ${answer.remaining} remain`,
  );
  return {
    seconds: Math.round(systemClock.now() - startedAt) / 1_000,
    cpuSeconds: Math.round(cpuSeconds * 100) / 100,
    reEncrypted: Number(answer.reEncrypted),
  };
}

/** Creates the secrets, and measures a rotation. */
async function createAndMeasure(files: CoordinatorFiles) {
  const coordinator = SecretsCoordinator.start(files);
  try {
    const client = await coordinator.connect();
    await createSecrets(client);
    log(`${secretCount} secrets created`);
    const figures = await measure(coordinator, client);
    log(`rotation without kills: ${JSON.stringify(figures)}`);
    return figures;
  } finally {
    await coordinator.end('SIGTERM');
  }
}

/** A cluster that is killed in the middle of rotations. */
class KilledRotations {
  /** Number of kills by the moment that the state shows afterwards. */
  readonly kills = new Map<RotationMoment, number>();
  private rotations = 0;

  constructor(
    private readonly files: CoordinatorFiles,
    private readonly read: () => Promise<StoredSecrets>,
  ) {}

  get killed(): number {
    return [...this.kills].reduce(
      (sum, [moment, count]) => sum + (moment === 'none' ? 0 : count),
      0,
    );
  }

  get isComplete(): boolean {
    return (
      killCount === 0 ||
      (this.killed >= killCount && MOMENTS.every((moment) => this.kills.has(moment)))
    );
  }

  /** Runs rotations until enough coordinators were killed, and completes the last rotation. */
  async run(): Promise<void> {
    const most = killCount + SPARE_KILLS;
    for (let round = 0; round < most && !this.isComplete;) {
      for (const point of planKills(secretCount)) {
        if (this.isComplete && point.moment === 'pending') break;
        round += 1;
        const moment = await this.killAt(point);
        if (moment === 'none' || this.killed >= killCount + SPARE_KILLS) break;
      }
      await this.complete();
    }
  }

  /** Returns the moment that the state shows after the kill. */
  private async killAt(point: KillPoint): Promise<RotationMoment> {
    const before = await this.read();
    const isRotating = findMoment(before) !== 'none';
    if (!isRotating) this.rotations += 1;
    const coordinator = SecretsCoordinator.start(this.files);
    const remaining = isRotating ? countRemaining(before) : secretCount;
    try {
      const isDue = coordinator.waitForStep(createTrigger(point, remaining));
      if (!isRotating) {
        const client = await coordinator.connect();
        // The kill ends the call.
        client
          .rotateMasterKey({ reEncryptAll: true, requestId: this.requestId })
          .catch(() => undefined);
      }
      await isDue;
    } finally {
      await coordinator.end('SIGKILL');
    }
    const after = await this.read();
    const moment = findMoment(after);
    this.kills.set(moment, (this.kills.get(moment) ?? 0) + 1);
    log(
      `kill ${this.killed}, rotation ${this.rotations}: aimed at ${point.moment}, hit ${moment}, ${countRemaining(after)} versions remain`,
    );
    for (const text of checkReadable(after, expected))
      violations.check(false, `after a kill at ${moment}: ${text}`);
    return moment;
  }

  /** Waits for the end of the rotation, and checks that it has ended. */
  private async complete(): Promise<void> {
    const coordinator = SecretsCoordinator.start(this.files);
    try {
      const client = await coordinator.connect();
      const call = { reEncryptAll: true, requestId: this.requestId };
      const answer = await client.rotateMasterKey(call);
      const repeated = await client.rotateMasterKey(call);
      const info = await client.getMasterKeyInfo({});
      violations.check(
        answer.remaining === 0n && info.keys.length === 1 && !info.rotating,
        `rotation ${this.rotations} has ended with ${answer.remaining} versions and ${info.keys.length} keys`,
      );
      violations.check(
        Number(info.keys[0]?.versionCount) === secretCount,
        `the active key encrypts ${info.keys[0]?.versionCount} versions, must be ${secretCount}`,
      );
      violations.check(
        repeated.masterKeyId === answer.masterKeyId && repeated.reEncrypted === answer.reEncrypted,
        `rotation ${this.rotations}: a repeated call got another answer`,
      );
    } finally {
      await coordinator.end('SIGTERM');
    }
    for (const text of checkRotated(await this.read())) violations.check(false, text);
  }

  private get requestId(): string {
    return `rotation-${this.rotations}`;
  }
}

if (flags.inject !== undefined && !(flags.inject in INJECTIONS))
  throw new Error(`--inject ${flags.inject}: must be ${Object.keys(INJECTIONS).join(', ')}`);
const directory = await mkdtemp(join(tmpdir(), 'cloudless-secret-rotation-'));
try {
  const keyEncryptionKey = systemRandom.bytes(32);
  const files = { dataDir: join(directory, 'data'), keyFile: join(directory, 'secrets-key') };
  await writeFile(files.keyFile, Buffer.from(keyEncryptionKey).toString('hex'), { mode: 0o600 });
  const read = (): Promise<StoredSecrets> => readStoredSecrets(files.dataDir, keyEncryptionKey);

  const unkilled = await createAndMeasure(files);

  const rotations = new KilledRotations(files, read);
  await rotations.run();
  if (flags.inject !== undefined)
    await injectViolation(files.dataDir, flags.inject as keyof typeof INJECTIONS);
  const stored = await read();
  for (const text of [...checkReadable(stored, expected), ...checkRotated(stored)])
    violations.check(false, `at the end: ${text}`);
  violations.checkPace(
    rotations.isComplete,
    `${rotations.killed} of ${killCount} kills hit a rotation: ${JSON.stringify(Object.fromEntries(rotations.kills))}`,
  );
  printReport('secret-rotation', {
    secrets: secretCount,
    withoutKills: unkilled,
    kills: rotations.killed,
    killsByMoment: Object.fromEntries(rotations.kills),
    readable: stored.versions.filter(({ data }) => data !== undefined).length,
    masterKeys: stored.keys.length,
    violations: violations.texts,
  });
} finally {
  await rm(directory, { recursive: true, force: true });
}
process.exit(violations.exitCode());

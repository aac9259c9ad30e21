import { create, type MessageInitShape } from '@bufbuild/protobuf';
import {
  GetReplicaFilesResponseSchema,
  Reload_Mode as ReloadMode,
  ReplicaFilesVersion_Kind as FilesKind,
  type GetReplicaFilesRequest,
  type GetReplicaFilesResponse,
  type WorkloadSpecSchema,
} from '@cloudless/api';
import { CloudlessError, toContainerId } from '@cloudless/base';
import { settle } from '@cloudless/base/testing';
import type { ContainerRequest } from '@cloudless/runtime';
import { createFakeRuntime } from '@cloudless/runtime/testing';
import { MemoryReplicaFiles } from '../testing/memory-replica-files.js';
import { AgentTestBed, aForgetOrder, aStartOrder, aStopOrder } from '../testing/index.js';

type SpecInit = MessageInitShape<typeof WorkloadSpecSchema>;

/** A node that delivers secrets and configs, and a coordinator that has some. */
class FilesBed extends AgentTestBed {
  readonly files = new MemoryReplicaFiles();
  readonly requests: GetReplicaFilesRequest[] = [];
  /** While set, the coordinator refuses the values. */
  refusal: CloudlessError | undefined;
  /** Secrets and configs by kind and name. */
  readonly objects = new Map<string, { version: number; data: Record<string, string> }>();

  constructor(capabilities?: readonly string[]) {
    super();
    if (capabilities !== undefined)
      this.runtime = createFakeRuntime({ clock: this.clock, capabilities });
    this.replicaFiles = this.files;
    this.coordinator.getReplicaFiles = async (request) => {
      this.requests.push(request);
      if (this.refusal !== undefined) throw this.refusal;
      return [...this.objects].map(([key, object]) => this.toResponse(request, key, object));
    };
    this.set('SECRET db', 1, { password: 'first' });
  }

  set(key: string, version: number, data: Record<string, string>): void {
    this.objects.set(key, { version, data });
  }

  private toResponse(
    { known }: GetReplicaFilesRequest,
    key: string,
    { version, data }: { version: number; data: Record<string, string> },
  ): GetReplicaFilesResponse {
    const [kindName = '', name = ''] = key.split(' ');
    const kind = FilesKind[kindName as keyof typeof FilesKind];
    const unchanged = known.some(
      (each) => each.kind === kind && each.name === name && each.version === version,
    );
    const bytes = Object.entries(data).map(
      ([field, text]) => [field, new TextEncoder().encode(text)] as const,
    );
    return create(GetReplicaFilesResponseSchema, {
      version: { kind, name, uid: `uid-${name}`, version },
      unchanged,
      data: unchanged ? {} : Object.fromEntries(bytes),
    });
  }

  async order(spec: SpecInit): Promise<void> {
    this.coordinator.sendOrder(aStartOrder({ spec }));
    await settle();
  }

  async notifyChanged(): Promise<void> {
    this.coordinator.send({
      case: 'filesChanged',
      value: { $typeName: 'cloudless.api.ReplicaFilesChanged', replicaIds: ['web-1'] },
    });
    await settle();
  }

  disconnect(): void {
    this.coordinator.reachable = false;
    this.coordinator.dropConnections();
  }

  exit(): void {
    this.machine.exit(toContainerId(this.requireReport().containerId), 1);
  }

  requestOfContainer(): ContainerRequest {
    return this.machine.requireRequest(toContainerId(this.requireReport().containerId));
  }

  readPassword(): string | undefined {
    return this.files.readFile('web-1', 'secrets/db', 'password');
  }
}

const WITH_SECRET = { secrets: [{ name: 'db' }] } satisfies SpecInit;
const WITH_SIGNAL = {
  secrets: [{ name: 'db', reload: { mode: ReloadMode.SIGNAL, signal: 'SIGUSR1' } }],
} satisfies SpecInit;
const CONTAINER = { image: 'registry.example/web:1', command: [] } satisfies SpecInit;
const CONTAINERS = ['runtime.cri', 'security.context', 'files.signal'];

describe('replica with secrets', () => {
  it.each([
    { node: 'processes', capabilities: ['runtime.process'], expected: ['files.secrets'] },
    {
      node: 'containers',
      capabilities: ['runtime.cri'],
      expected: ['files.secrets', 'images.credentials'],
    },
  ])('gives a node with $node the capabilities $expected', async ({ capabilities, expected }) => {
    const bed = new FilesBed(capabilities);
    await bed.start();
    const names = bed.coordinator.hellos.at(-1)?.capabilities ?? [];
    expect(names.filter((name) => /^(files|images)\./.test(name))).toEqual(expected);
  });

  it('has the files before its process starts, in a directory that a variable names', async () => {
    const bed = new FilesBed();
    bed.set('CONFIG app', 3, { 'app.conf': 'debug' });
    await bed.start();
    await bed.order({
      secrets: [{ name: 'db', keys: [{ key: 'password', file: 'secret.txt' }] }],
      configs: [{ name: 'app' }],
    });
    expect(bed.requestOfContainer().env).toMatchObject({
      CLOUDLESS_SECRETS_DIR: '/files/web-1/secrets',
      CLOUDLESS_CONFIGS_DIR: '/files/web-1/configs',
    });
    expect(bed.files.readFile('web-1', 'secrets/db', 'secret.txt')).toBe('first');
    expect(bed.files.readFile('web-1', 'configs/app', 'app.conf')).toBe('debug');
    expect(bed.files.sets.get('web-1/secrets/db')?.mode).toBe(0o400);
    expect(bed.files.sets.get('web-1/configs/app')?.mode).toBe(0o444);
  });

  it('has a read-only mount for each secret in its container, and the mode by its user', async () => {
    const bed = new FilesBed(CONTAINERS);
    await bed.start();
    await bed.order({
      ...CONTAINER,
      secrets: [{ name: 'db', mountPath: '/etc/db' }],
      security: { runAsUser: 70n, fsGroup: 71n },
    });
    expect(bed.requestOfContainer()).toMatchObject({
      env: { CLOUDLESS_SECRETS_DIR: '/run/secrets' },
      volumes: [
        {
          mountPath: '/etc/db',
          readOnly: true,
          source: {
            kind: 'prepared',
            path: '/files/web-1/secrets/db',
            inMemory: true,
            mountPoint: '/files/web-1',
          },
        },
      ],
    });
    expect(bed.files.sets.get('web-1/secrets/db')).toMatchObject({
      mode: 0o400,
      reader: { userId: 70, groupId: 71 },
    });
  });

  it('gets values as confidential variables, never beside the public variables', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order({ secrets: [{ name: 'db', keys: [{ key: 'password', env: 'PASSWORD' }] }] });
    const { env, secretEnv } = bed.requestOfContainer();
    expect(secretEnv).toEqual({ PASSWORD: 'first' });
    expect(JSON.stringify(env)).not.toContain('first');
    expect(bed.files.sets.size).toBe(0);
  });

  it('keeps no value in the stored orders', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SECRET);
    const { replicas } = await bed.store.load();
    const stored = replicas.map((each) => Buffer.from(each.start ?? []).toString('latin1'));
    expect(stored.join()).toContain('db');
    expect(stored.join()).not.toContain('first');
  });

  it('waits while the coordinator refuses its values, and says so', async () => {
    const bed = new FilesBed();
    bed.refusal = new CloudlessError('precondition', 'secret db has expired');
    await bed.start();
    await bed.order(WITH_SECRET);
    expect(bed.summarizeReport()).toMatchObject({
      phase: 'STARTING',
      reason: expect.stringMatching(
        /^secrets: no values for the replica: secret db has expired/,
      ) as unknown,
    });
    bed.refusal = undefined;
    await bed.clock.advance(60_000);
    expect(bed.machine.startCount).toBe(1);
    expect(bed.readPassword()).toBe('first');
  });

  it('restarts in place without a coordinator, also after a restart of the agent', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SECRET);
    bed.disconnect();
    bed.exit();
    await bed.clock.advance(20_000);
    expect(bed.machine.startCount).toBe(2);
    bed.files.sets.clear(); // as a restart of the machine clears a tmpfs
    await bed.restart();
    expect(bed.readPassword()).toBe('first');
    bed.machine.exit(bed.machine.statuses().at(-1)!.containerId, 1);
    await bed.clock.advance(60_000);
    expect(bed.machine.startCount).toBe(3);
  });

  it('loses files and copy when it is forgotten; files of unknown replicas go with the next agent', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SECRET);
    await bed.files.open('left-over');
    await bed.restart();
    expect(await bed.files.list()).toEqual(['web-1']);
    bed.coordinator.sendOrder(aStopOrder({ preStopMs: 0, graceMs: 0 }));
    await settle();
    bed.coordinator.sendOrder(aForgetOrder());
    await settle();
    expect(await bed.files.list()).toEqual([]);
    expect(bed.files.sets.size).toBe(0);
  });

  it('loses its copy when the coordinator refuses the values after a move', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    expect(bed.files.copies.size).toBe(1);
    bed.refusal = new CloudlessError('denied', 'replica web-1 is not on node node-1');
    await bed.notifyChanged();
    expect(bed.files.copies.size).toBe(0);
    const { length } = bed.requests;
    await bed.clock.advance(3_600_000);
    expect(bed.requests).toHaveLength(length);
  });
});

describe('change of a secret', () => {
  it('replaces the files and sends the signal once', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    bed.set('SECRET db', 2, { password: 'second' });
    await bed.notifyChanged();
    await bed.notifyChanged();
    expect(bed.readPassword()).toBe('second');
    expect(bed.machine.signals).toEqual(['SIGUSR1']);
    expect(bed.machine.startCount).toBe(1);
    expect(bed.requests.at(-1)?.known).toMatchObject([{ name: 'db', version: 2 }]);
  });

  it('only replaces the files with the mode NONE', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order({ secrets: [{ name: 'db', reload: { mode: ReloadMode.NONE } }] });
    bed.set('SECRET db', 2, { password: 'second' });
    await bed.notifyChanged();
    expect(bed.readPassword()).toBe('second');
    expect(bed.machine.signals).toEqual([]);
  });

  it('reaches the replica at the next session when its message was lost', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    bed.set('SECRET db', 2, { password: 'second' });
    bed.coordinator.dropConnections();
    await bed.clock.advance(10_000);
    expect(bed.readPassword()).toBe('second');
    expect(bed.machine.signals).toEqual(['SIGUSR1']);
  });

  it('is repeated after a failure, which the report of the replica shows meanwhile', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    bed.set('SECRET db', 2, { password: 'second' });
    bed.files.failure = new CloudlessError('exhausted', 'no space left');
    await bed.notifyChanged();
    expect(bed.summarizeReport()).toMatchObject({
      phase: 'RUNNING',
      ready: true,
      reason: 'secrets: not up to date: no space left',
    });
    expect(bed.machine.signals).toEqual([]);
    bed.files.failure = undefined;
    await bed.clock.advance(2_000);
    expect(bed.readPassword()).toBe('second');
    expect(bed.machine.signals).toEqual(['SIGUSR1']);
    expect(bed.summarizeReport()?.reason).toBe('');
  });

  it('sends the signal after a restart of the agent that ended between the files and the signal', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    bed.set('SECRET db', 2, { password: 'second' });
    bed.machine.failNextSignal(new CloudlessError('unavailable', 'the runtime does not answer'));
    await bed.notifyChanged();
    expect(bed.machine.signals).toEqual([]);
    await bed.restart();
    await bed.clock.advance(1_000);
    expect(bed.machine.signals).toEqual(['SIGUSR1']);
  });

  it('sends no signal to a process that started with the new files', async () => {
    const bed = new FilesBed();
    await bed.start();
    await bed.order(WITH_SIGNAL);
    bed.set('SECRET db', 2, { password: 'second' });
    bed.exit();
    await bed.clock.advance(20_000);
    await bed.notifyChanged();
    expect(bed.readPassword()).toBe('second');
    expect(bed.machine.signals).toEqual([]);
  });
});

describe('credentials for the image', () => {
  const withPullSecret = { ...CONTAINER, imagePull: { secret: 'registry' } } satisfies SpecInit;

  it('are part of the request to the runtime and of nothing that is stored', async () => {
    const bed = new FilesBed(CONTAINERS);
    bed.objects.clear();
    bed.set('IMAGE_PULL_SECRET registry', 1, { username: 'ci', password: 'open sesame' });
    await bed.start();
    await bed.order(withPullSecret);
    expect(bed.requestOfContainer().imageCredentials).toEqual({
      username: 'ci',
      password: 'open sesame',
    });
    expect(bed.files.copies.size).toBe(0);
  });

  it('are left out of a restart without a coordinator, which uses the image on the node', async () => {
    const bed = new FilesBed(CONTAINERS);
    bed.objects.clear();
    bed.set('IMAGE_PULL_SECRET registry', 1, { username: 'ci', password: 'open sesame' });
    await bed.start();
    await bed.order(withPullSecret);
    bed.disconnect();
    bed.exit();
    await bed.clock.advance(20_000);
    expect(bed.machine.startCount).toBe(2);
    expect(
      bed.machine.requireRequest(bed.machine.statuses().at(-1)!.containerId),
    ).not.toHaveProperty('imageCredentials');
  });
});

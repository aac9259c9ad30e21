import { create } from '@bufbuild/protobuf';
import { WorkloadCertificateSchema, WorkloadSpecSchema } from '@cloudless/api';
import { CloudlessError, createSeededRandom, type Log } from '@cloudless/base';
import { ManualClock, RecordingMeter, settle } from '@cloudless/base/testing';
import { MemoryWorkloadIdentityFiles } from '../testing/memory-workload-identity-files.js';
import { WorkloadIdentities } from './workload-identities.js';

const HOUR_MS = 3_600_000;
const SPEC = create(WorkloadSpecSchema, { image: 'a', identity: {} });

/** A node with files in memory and a coordinator that issues certificates of 24 h. */
class Node {
  readonly clock = new ManualClock();
  readonly meter = new RecordingMeter();
  readonly files = new MemoryWorkloadIdentityFiles();
  readonly logged: { readonly level: string; readonly message: string }[] = [];
  /** Replica ids of the requests in order. */
  readonly requests: string[] = [];
  failure: CloudlessError | undefined;
  lifetimeMs = 24 * HOUR_MS;
  bundlePem = 'roots-1';
  /** Set to move the wall clock against the monotonic clock. */
  wallOffsetMs = 0;
  identities = this.open();

  open(): WorkloadIdentities {
    let keyCount = 0;
    return new WorkloadIdentities({
      nodeId: 'node-1',
      files: this.files,
      createKeyAndCsr: async () => ({
        keyPem: `key-${(keyCount += 1)}`,
        csr: new Uint8Array([keyCount]),
      }),
      issue: async ({ nodeId, replicaId, csr }) => {
        this.requests.push(`${nodeId} ${replicaId} ${csr.length}`);
        if (this.failure !== undefined) throw this.failure;
        const nowMs = this.clock.wallTime();
        return create(WorkloadCertificateSchema, {
          certificateChain: `chain-${this.requests.length} ${nowMs - 60_000} ${nowMs + this.lifetimeMs}`,
          trustBundle: { generation: 1n, pem: this.bundlePem },
        });
      },
      trustBundlePem: () => this.bundlePem,
      clock: {
        now: () => this.clock.now(),
        wallTime: () => this.clock.wallTime() + this.wallOffsetMs,
        setTimer: (delayMs, action) => this.clock.setTimer(delayMs, action),
      },
      random: createSeededRandom(1),
      log: this.log(),
      meter: this.meter,
    });
  }

  chainOf(replicaId: string): string | undefined {
    return this.files.contents.get(replicaId)?.chainPem.split(' ')[0];
  }

  private log(): Log {
    const write =
      (level: string) =>
      (message: string): void =>
        void this.logged.push({ level, message });
    const log = {
      error: write('error'),
      warn: write('warn'),
      info: write('info'),
      debug: write('debug'),
      child: () => log,
    };
    return log as unknown as Log;
  }
}

const unreachable = new CloudlessError(
  'unavailable',
  'this node has no session with a coordinator',
);

describe('WorkloadIdentities', () => {
  it('obtains a certificate with its own key before the first start of a replica', async () => {
    const node = new Node();
    await node.identities.prepare('web-1', SPEC);
    await node.identities.prepare('web-2', SPEC);
    expect(node.requests).toEqual(['node-1 web-1 1', 'node-1 web-2 1']);
    expect(node.files.contents.get('web-1')).toMatchObject({
      keyPem: 'key-1',
      bundlePem: 'roots-1',
    });
    expect(node.files.contents.get('web-2')).toMatchObject({ keyPem: 'key-2' });
    expect(node.identities.findDirectory('web-1')).toEqual({
      path: '/identities/web-1',
      inMemory: true,
    });
  });

  it('names the field and the cause when the coordinator cannot be reached, and succeeds later', async () => {
    const node = new Node();
    node.failure = unreachable;
    await expect(node.identities.prepare('web-1', SPEC)).rejects.toMatchObject({
      kind: 'unavailable',
      message:
        'spec.identity: no certificate for the replica: this node has no session with a coordinator',
    });
    expect(node.identities.findDirectory('web-1')).toBeUndefined();
    node.failure = undefined;
    await node.identities.prepare('web-1', SPEC);
    expect(node.chainOf('web-1')).toBe('chain-2');
  });

  it('counts issued and renewed certificates, and failures', async () => {
    const node = new Node();
    const read = (result: string) =>
      node.meter.read('cloudless_agent_replica_certificates_total', { result });
    await node.identities.prepare('web-1', SPEC);
    await node.identities.prepare('web-1', SPEC); // a restart in place needs no other certificate
    await node.identities.renewAll();
    node.failure = unreachable;
    await node.identities.renewAll();
    expect([await read('issued'), await read('renewed'), await read('failed')]).toEqual([1, 1, 1]);
    node.identities.close();
  });

  it('keeps a valid certificate for a restart in place without a coordinator', async () => {
    const node = new Node();
    await node.identities.prepare('web-1', SPEC);
    node.failure = unreachable;
    await node.identities.prepare('web-1', SPEC);
    expect(node.requests).toHaveLength(1);
    await node.clock.advance(25 * HOUR_MS);
    await expect(node.identities.prepare('web-1', SPEC)).rejects.toMatchObject({
      kind: 'unavailable',
    });
  });

  it.each([1, 2, 3])(
    'renews between 50 and 60 percent of the life of a certificate (%i)',
    async (rounds) => {
      const node = new Node();
      await node.identities.prepare('web-1', SPEC);
      for (let round = 1; round <= rounds; round += 1) {
        const obtainedAtMs = node.files.contents.get('web-1')?.obtainedAtMs ?? 0;
        await node.clock.advance(obtainedAtMs + 12 * HOUR_MS - 60_000 - node.clock.wallTime());
        expect(node.requests).toHaveLength(round);
        await node.clock.advance(2.5 * HOUR_MS);
        expect(node.requests).toHaveLength(round + 1);
        expect(node.chainOf('web-1')).toBe(`chain-${round + 1}`);
      }
    },
  );

  it('repeats a failed renewal with growing delays, with one warning, until it succeeds', async () => {
    const node = new Node();
    await node.identities.prepare('web-1', SPEC);
    node.failure = unreachable;
    await node.clock.advance(16 * HOUR_MS);
    const attempts = node.requests.length;
    expect(attempts).toBeGreaterThan(50);
    expect(attempts).toBeLessThan(500);
    expect(node.logged.filter(({ level }) => level === 'warn')).toHaveLength(1);
    node.failure = undefined;
    await node.clock.advance(61_000);
    expect(node.files.contents.get('web-1')?.notAfterMs).toBeGreaterThan(
      node.clock.wallTime() + 23 * HOUR_MS,
    );
  });

  it('renews certificates with a life of seconds without a gap', async () => {
    const node = new Node();
    node.lifetimeMs = 10_000;
    await node.identities.prepare('web-1', SPEC);
    for (let step = 0; step < 600; step += 1) {
      await node.clock.advance(100);
      expect(node.files.contents.get('web-1')?.notAfterMs).toBeGreaterThan(node.clock.wallTime());
    }
    expect(node.requests.length).toBeLessThan(14);
  });

  it('renews after the wall clock was set forward', async () => {
    const node = new Node();
    await node.identities.prepare('web-1', SPEC);
    node.wallOffsetMs = 20 * HOUR_MS;
    await node.clock.advance(11 * 60_000);
    expect(node.requests).toHaveLength(2);
  });

  it('lets only the numeric user and the group of the spec read the files', async () => {
    const node = new Node();
    await node.identities.prepare('any', SPEC);
    const security = { runAsUser: 1000n, fsGroup: 5n };
    await node.identities.prepare('one', create(WorkloadSpecSchema, { image: 'a', security }));
    expect([...node.files.readers]).toEqual([
      ['any', {}],
      ['one', { userId: 1000, groupId: 5 }],
    ]);
  });

  it('goes on after a restart of the agent, and removes the files of unknown replicas', async () => {
    const node = new Node();
    for (const id of ['web-1', 'gone-1']) await node.identities.prepare(id, SPEC);
    await node.files.open('half-1');
    node.identities.close();
    node.identities = node.open();
    await node.identities.restore(new Map(['web-1', 'half-1'].map((id) => [id, SPEC] as const)));
    expect([...node.files.contents.keys()]).toEqual(['web-1']);
    expect(node.identities.findDirectory('web-1')).toBeDefined();
    expect(node.requests).toHaveLength(2);
    await node.clock.advance(15 * HOUR_MS);
    expect(node.requests).toEqual(['node-1 web-1 1', 'node-1 gone-1 1', 'node-1 web-1 1']);
  });

  it('writes new roots at once for all replicas, then renews every certificate', async () => {
    const node = new Node();
    for (const id of ['web-1', 'web-2']) await node.identities.prepare(id, SPEC);
    node.failure = unreachable;
    node.bundlePem = 'roots-2';
    await node.identities.renewAll();
    for (const id of ['web-1', 'web-2'])
      expect(node.files.contents.get(id)).toMatchObject({ bundlePem: 'roots-2' });
    expect([node.chainOf('web-1'), node.chainOf('web-2')]).toEqual(['chain-1', 'chain-2']);
    node.failure = undefined;
    await node.identities.renewAll();
    expect([node.chainOf('web-1'), node.chainOf('web-2')]).toEqual(['chain-5', 'chain-6']);
  });

  it('completes a change of the roots that the end of the agent has interrupted', async () => {
    const node = new Node();
    await node.identities.prepare('web-1', SPEC);
    node.identities.close();
    node.bundlePem = 'roots-2';
    node.identities = node.open();
    await node.identities.restore(new Map([['web-1', SPEC]]));
    await settle();
    expect(node.files.contents.get('web-1')).toMatchObject({ bundlePem: 'roots-2' });
    expect(node.chainOf('web-1')).toBe('chain-2');
  });

  it('leaves no file and no timer behind when a replica is removed during its preparation', async () => {
    const node = new Node();
    const preparing = node.identities.prepare('web-1', SPEC);
    const removing = node.identities.remove('web-1');
    await Promise.all([preparing, removing]);
    await settle();
    expect(node.files.contents.size).toBe(0);
    await node.clock.advance(48 * HOUR_MS);
    expect(node.requests).toHaveLength(1);
  });

  it('refuses a certificate without chain or roots', async () => {
    const node = new Node();
    node.bundlePem = '';
    await expect(node.identities.prepare('web-1', SPEC)).rejects.toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining('without its chain or the trusted roots') as unknown,
    });
  });
});

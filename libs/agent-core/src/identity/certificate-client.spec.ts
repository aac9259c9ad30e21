import fc from 'fast-check';
import { CloudlessError, silentLog, type Log, type LogFields } from '@cloudless/base';
import { RecordingMeter } from '@cloudless/base/testing';
import { SecureAgentTestBed } from '../testing/index.js';

const MINUTE = 60_000;
/** Validity of the certificates of these tests. */
const LIFE = 20 * MINUTE;

/** Returns a log that collects messages, with the remedy for the operator. */
function recordingLog(lines: string[]): Log {
  const record = (message: string, fields?: LogFields): void => {
    lines.push(message);
    if (fields?.['remedy'] !== undefined) lines.push(`remedy: ${String(fields['remedy'])}`);
    if (fields?.['error'] !== undefined) lines.push(`error: ${String(fields['error'])}`);
  };
  const log: Log = { ...silentLog, info: record, warn: record, error: record, child: () => log };
  return log;
}

function createTestBed(): SecureAgentTestBed {
  const testBed = new SecureAgentTestBed();
  testBed.authority.lifetimeMs = LIFE;
  return testBed;
}

async function startJoined(testBed = createTestBed()): Promise<SecureAgentTestBed> {
  await testBed.start();
  expect(testBed.agent.connected).toBe(true);
  return testBed;
}

const bundle = (generation: bigint) => ({
  case: 'renewCertificate' as const,
  value: { trustBundle: { generation, pem: `roots ${generation}` } } as never,
});

describe('joining', () => {
  it('enrols with key and token, stores the identity, and opens the session', async () => {
    const testBed = await startJoined();
    expect(testBed.coordinator.enrolments).toMatchObject([
      { nodeId: 'node-1', token: 'token-1', csr: new TextEncoder().encode('key-1') },
    ]);
    expect(testBed.keeper.current).toMatchObject({
      clusterId: 'cluster-1',
      trustDomain: 'cloudless',
    });
    expect([testBed.agent.clusterId, testBed.joins]).toEqual(['cluster-1', 1]);
  });

  it('does not happen again after a restart: the identity wins over the token', async () => {
    const testBed = await startJoined();
    await testBed.restart();
    expect([testBed.agent.connected, testBed.coordinator.enrolments.length]).toEqual([true, 1]);
  });

  it('is repeated with the same key after a lost reply, which is one use of the token', async () => {
    const testBed = createTestBed();
    testBed.authority.losesReplies = true;
    await testBed.start();
    await testBed.clock.advance(3_000);
    await testBed.restart();
    testBed.authority.losesReplies = false;
    await testBed.clock.advance(3_000);
    expect(testBed.agent.connected).toBe(true);
    expect(testBed.coordinator.enrolments.length).toBeGreaterThan(2);
    expect([...testBed.authority.joinedKeys]).toEqual(['key-1']);
  });

  it('tries one coordinator after the other while they cannot be reached', async () => {
    const testBed = createTestBed();
    testBed.coordinators = ['https://a', 'https://b'];
    testBed.joinFailure = new CloudlessError('unavailable', 'no coordinator reached');
    await testBed.start();
    await testBed.clock.advance(10_000);
    expect(testBed.joinDials.slice(0, 4)).toEqual([
      'https://a',
      'https://b',
      'https://a',
      'https://b',
    ]);
    testBed.joinFailure = undefined;
    await testBed.clock.advance(3_000);
    expect(testBed.agent.connected).toBe(true);
  });

  it('reports a refused token once, and never sends this token again', async () => {
    const testBed = createTestBed();
    testBed.token = 'used-up';
    await testBed.start();
    await testBed.clock.advance(10 * 60_000);
    expect(testBed.coordinator.enrolments).toHaveLength(1);
    expect(testBed.refusals.map(({ message }) => message)).toEqual([
      'the coordinator refuses the join token: the token is unknown, expired, revoked, used up or not for node node-1; ' +
        'create another one with cloudlessctl token create, and start the agent with --join-token-file FILE',
    ]);
  });

  it.each([
    ['the node is banned', new CloudlessError('NODE_BANNED', 'node-1 is banned')],
    ['the server is of another cluster', new CloudlessError('CERTIFICATE_INVALID', 'other root')],
  ])('is retried only each half minute while %s', async (_name, failure) => {
    const testBed = createTestBed();
    testBed.joinFailure = failure;
    await testBed.start();
    await testBed.clock.advance(5 * 60_000);
    expect(testBed.joinDials.length).toBeGreaterThanOrEqual(10);
    expect(testBed.joinDials.length).toBeLessThanOrEqual(21);
    testBed.joinFailure = undefined;
    await testBed.clock.advance(30_000);
    expect([testBed.agent.connected, testBed.refusals]).toEqual([true, []]);
  });

  it('is retried within seconds while a node with the name is alive', async () => {
    const testBed = createTestBed();
    testBed.joinFailure = new CloudlessError('NODE_EXISTS', 'node-1 is alive');
    await testBed.start();
    await testBed.clock.advance(MINUTE);
    expect(testBed.joinDials.length).toBeGreaterThanOrEqual(12);
    expect(testBed.joinDials.length).toBeLessThanOrEqual(25);
  });

  it('is refused by an agent that belongs to another cluster, which keeps its identity', async () => {
    const testBed = await startJoined();
    const before = testBed.keeper.current;
    testBed.coordinator.clusterId = 'cluster-2';
    testBed.coordinator.failure = new CloudlessError('CREDENTIAL_REVOKED', 'revoked');
    testBed.coordinator.dropConnections();
    await testBed.clock.advance(5_000);
    testBed.coordinator.failure = undefined;
    await testBed.clock.advance(40_000);
    expect(testBed.coordinator.enrolments.length).toBeGreaterThan(1);
    expect(testBed.keeper.current).toEqual(before);
    expect(testBed.agent.clusterId).toBe('cluster-1');
  });
});

describe('renewal', () => {
  it('happens between 50 and 60 % of the life, over the session, which goes on', async () => {
    const testBed = await startJoined();
    await testBed.clock.advance(10 * MINUTE - 1_000);
    expect(testBed.authority.renewals).toHaveLength(0);
    await testBed.clock.advance(2 * MINUTE + 2_000);
    expect(testBed.authority.renewals).toMatchObject([
      { nodeId: 'node-1', trustBundleGeneration: 1n, csr: new TextEncoder().encode('key-2') },
    ]);
    expect(testBed.keeper.current?.keyPem).toBe('secret of key-2');
    expect([testBed.coordinator.hellos.length, testBed.coordinator.dials.length]).toEqual([1, 2]);
    await testBed.clock.advance(10 * LIFE);
    expect(testBed.authority.renewals.length).toBeGreaterThanOrEqual(16);
    expect(testBed.authority.renewals.length).toBeLessThanOrEqual(22);
    expect(testBed.coordinator.hellos).toHaveLength(1);
  });

  it('is repeated with the same key and growing delays while it fails', async () => {
    const testBed = await startJoined();
    testBed.authority.losesReplies = true;
    await testBed.clock.advance(LIFE - MINUTE);
    const { length } = testBed.authority.renewals;
    expect(length).toBeGreaterThan(10);
    expect(length).toBeLessThan(50);
    expect(new Set(testBed.authority.issued)).toEqual(new Set(['key-1', 'key-2']));
    testBed.authority.losesReplies = false;
    await testBed.clock.advance(MINUTE / 2);
    expect(testBed.keeper.current?.keyPem).toBe('secret of key-2');
  });

  it('stores the new trust bundle, and then renews, as soon as the coordinator asks', async () => {
    const testBed = await startJoined();
    await testBed.clock.advance(5_000);
    testBed.authority.bundleGeneration = 4n;
    testBed.authority.failure = new CloudlessError('unavailable', 'not now');
    testBed.coordinator.send(bundle(4n));
    await testBed.clock.advance(100);
    expect(testBed.keeper.current).toMatchObject({
      keyPem: 'secret of key-1',
      trustBundle: { generation: 4n, pem: 'roots 4' },
    });
    testBed.authority.failure = undefined;
    await testBed.clock.advance(2_000);
    expect(testBed.authority.renewals).toMatchObject([{ trustBundleGeneration: 4n }]);
    expect(testBed.keeper.current?.keyPem).toBe('secret of key-2');
    await testBed.clock.advance(60_000);
    expect(testBed.authority.renewals).toHaveLength(1);
  });

  it('happens at most once a second when the coordinator asks all the time', async () => {
    const testBed = await startJoined();
    await testBed.clock.advance(5_000);
    for (let asked = 0; asked < 100; asked += 1) {
      testBed.authority.bundleGeneration = BigInt(2 + asked);
      testBed.coordinator.send(bundle(testBed.authority.bundleGeneration));
      await testBed.clock.advance(50);
    }
    expect(testBed.authority.renewals.length).toBeLessThanOrEqual(6);
    expect(testBed.keeper.current?.trustBundle.generation).toBe(101n);
  });

  it('comes before the session when the certificate expired while the agent was offline', async () => {
    const testBed = await startJoined();
    await testBed.kill();
    await testBed.clock.advance(3 * LIFE);
    await testBed.start();
    expect(testBed.authority.renewals).toHaveLength(1);
    expect([testBed.agent.connected, testBed.coordinator.enrolments.length]).toEqual([true, 1]);
  });

  it('comes before the session when only the clock of the coordinator says expired', async () => {
    const testBed = await startJoined();
    testBed.coordinator.failure = new CloudlessError('CERTIFICATE_EXPIRED', 'expired');
    testBed.coordinator.dropConnections();
    const renew = testBed.coordinator.renewNodeCertificate;
    testBed.coordinator.renewNodeCertificate = (request) => {
      testBed.coordinator.failure = undefined;
      return renew(request);
    };
    await testBed.clock.advance(3_000);
    expect([testBed.agent.connected, testBed.authority.renewals.length]).toEqual([true, 1]);
  });

  it('survives seconds-long certificates of a coordinator whose clock is ahead or behind', async () => {
    for (const skewMs of [-LIFE, 0, LIFE]) {
      const testBed = createTestBed();
      const { authority } = testBed;
      authority.lifetimeMs = 6_000;
      Object.assign(authority, { now: () => testBed.clock.wallTime() + skewMs });
      await testBed.start();
      await testBed.clock.advance(60_000);
      expect(testBed.agent.connected).toBe(true);
      expect(authority.renewals.length).toBeLessThanOrEqual(62);
      expect(authority.renewals.length).toBeGreaterThanOrEqual(15);
    }
  });
});

describe('a refused identity', () => {
  const refuse = async (reason: 'NODE_BANNED' | 'CREDENTIAL_REVOKED', lines: string[] = []) => {
    const testBed = createTestBed();
    testBed.log = recordingLog(lines);
    await startJoined(testBed);
    testBed.token = undefined;
    testBed.coordinator.sessionFailure = new CloudlessError(reason, 'node-1 is refused');
    testBed.coordinator.dropConnections();
    return testBed;
  };

  it('is retried slowly, names the way back once, and stops no replica', async () => {
    const lines: string[] = [];
    const testBed = await refuse('NODE_BANNED', lines);
    const { length } = testBed.coordinator.dials;
    await testBed.clock.advance(5 * 60_000);
    expect(testBed.coordinator.dials.length - length).toBeLessThanOrEqual(21);
    expect(lines.filter((line) => line.startsWith('remedy'))).toEqual([
      'remedy: cloudlessctl node unban node-1, then cloudlessctl node join-command, then start this agent with the new token: ' +
        'cloudless-agent run --join-token-file FILE',
    ]);
    expect(testBed.refusals).toEqual([]);
  });

  it('is replaced by a join at once when the agent has a token', async () => {
    const testBed = await refuse('CREDENTIAL_REVOKED');
    testBed.authority.tokens.add('token-2');
    testBed.token = 'token-2';
    await testBed.clock.advance(3_000);
    expect([...testBed.authority.joinedKeys]).toEqual(['key-1', 'key-2']);
  });

  it('is replaced by a join within half a minute after the agent gets a token', async () => {
    const testBed = await refuse('CREDENTIAL_REVOKED');
    await testBed.clock.advance(60_000);
    testBed.authority.tokens.add('token-2');
    testBed.token = 'token-2';
    await testBed.clock.advance(31_000);
    expect([...testBed.authority.joinedKeys]).toEqual(['key-1', 'key-2']);
    testBed.coordinator.sessionFailure = undefined;
    await testBed.clock.advance(60_000);
    expect(testBed.agent.connected).toBe(true);
    expect(testBed.coordinator.enrolments.at(-1)).toMatchObject({ token: 'token-2' });
  });

  it('does not end the agent when the new token is refused, too', async () => {
    const testBed = await refuse('CREDENTIAL_REVOKED');
    testBed.token = 'wrong';
    await testBed.clock.advance(5 * 60_000);
    expect(testBed.refusals).toEqual([]);
    expect(testBed.coordinator.enrolments.filter(({ token }) => token === 'wrong')).toHaveLength(1);
  });
});

it('metrics tell the expiry of the certificate, and renewals by result', async () => {
  const testBed = createTestBed();
  const meter = new RecordingMeter();
  testBed.meter = meter;
  await startJoined(testBed);
  testBed.authority.failure = new CloudlessError('unavailable', 'not now');
  await testBed.clock.advance(LIFE - MINUTE);
  testBed.authority.failure = undefined;
  await testBed.clock.advance(MINUTE / 2);
  expect(await meter.read('cloudless_agent_certificate_renewals_total', { result: 'ok' })).toBe(1);
  expect(
    await meter.read('cloudless_agent_certificate_renewals_total', { result: 'failed' }),
  ).toBeGreaterThan(1);
  expect(await meter.read('cloudless_agent_certificate_expiry_timestamp_seconds')).toBe(
    (testBed.keeper.current?.notAfterMs ?? 0) / 1_000,
  );
});

it('an agent that crashes at any moment joins with one use of its token, and key and certificate always match', async () => {
  const step = fc.record({
    crashAfter: fc.integer({ min: 1, max: 9 }),
    isDone: fc.boolean(),
    losesReply: fc.boolean(),
    offlineMs: fc.constantFrom(0, LIFE * 0.6, LIFE * 2),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
      const testBed = createTestBed();
      const { files, authority } = testBed;
      for (const { crashAfter, isDone, losesReply, offlineMs } of steps) {
        files.crash = { atChange: files.changes + crashAfter, isDone };
        authority.losesReplies = losesReply;
        await testBed.start().catch(() => undefined); // a crash while the files are loaded
        await testBed.clock.advance(MINUTE);
        await testBed.kill();
        await testBed.clock.advance(offlineMs);
      }
      files.crash = undefined;
      authority.losesReplies = false;
      await testBed.start();
      await testBed.clock.advance(MINUTE);
      expect(testBed.agent.connected).toBe(true);
      const { keyPem, chainPem, publicKeySha256 } = testBed.keeper.current ?? {};
      expect([keyPem, chainPem]).toEqual([
        `secret of ${publicKeySha256}`,
        `certificate of ${publicKeySha256}`,
      ]);
      expect(authority.joinedKeys.size).toBe(1);
    }),
    { numRuns: 60 },
  );
});

import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import { NodeRecordSchema } from '@cloudless/api/store';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock } from '@cloudless/base/testing';
import { openClusterState, type ClusterState } from '@cloudless/cluster-state';
import { createMemoryStateStore } from '@cloudless/state-store';
import { ExpiryWatch } from './expiry-watch.js';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let clock: ManualClock;
let state: ClusterState;
let authorityExpiresInMs: number;
let watch: ExpiryWatch;

beforeEach(async () => {
  clock = new ManualClock();
  const store = createMemoryStateStore({ clock });
  const random = createSeededRandom(1);
  state = await openClusterState({ store, clock, random, log: silentLog, holder: 'test' });
  authorityExpiresInMs = 365 * DAY_MS;
  const startMs = clock.wallTime();
  watch = new ExpiryWatch({
    ...{ state, clock, log: silentLog, nodeLifetimeMs: DAY_MS },
    nodes: { isAlive: (nodeId) => nodeId !== 'lost' },
    getAuthorityExpiry: () => Promise.resolve(startMs + authorityExpiresInMs),
  });
});
afterEach(async () => {
  watch.close();
  await state.close();
});

/** Stores a node whose certificate expires after this time. */
async function putNode(id: string, expiresInMs: number): Promise<void> {
  const notAfter = timestampFromMs(clock.wallTime() + expiresInMs);
  const record = create(NodeRecordSchema, {
    id,
    identity: { current: { serial: `${id}-${expiresInMs}`, notAfter } },
  });
  await state.commit(state.transaction().put('node', id, record));
}

const reasons = () =>
  state
    .view()
    .events()
    .map(({ reason, nodeId }) => `${reason} ${nodeId}`);

describe('ExpiryWatch', () => {
  it('reports a connected node once whose agent does not renew, and no other', async () => {
    await putNode('n1', 6 * HOUR_MS);
    await putNode('n2', 20 * HOUR_MS);
    await putNode('lost', HOUR_MS);
    await clock.advance(HOUR_MS);
    expect(reasons()).toEqual([]);
    await clock.advance(3 * HOUR_MS);
    expect(reasons()).toEqual(['NodeCertificateExpires n1']);
    await putNode('n1', DAY_MS);
    await clock.advance(3 * HOUR_MS);
    expect(reasons()).toEqual(['NodeCertificateExpires n1']);
  });

  it('warns of an authority that expires within 90 days, once a day', async () => {
    authorityExpiresInMs = 90 * DAY_MS + HOUR_MS;
    await clock.advance(0);
    expect([watch.listWarnings(), reasons()]).toEqual([[], []]);
    await clock.advance(2 * DAY_MS);
    expect(reasons()).toEqual(['CertificateAuthorityExpires ', 'CertificateAuthorityExpires ']);
    expect(watch.listWarnings()).toEqual([
      expect.stringContaining('rotate it with "cloudlessctl admin rotate-ca"'),
    ]);
  });
});

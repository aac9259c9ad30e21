import type { ClusterView } from '@cloudless/cluster-state';
import { checkHealth, checkReadiness, type HealthSources } from './health-checks.js';
import { StoreHealth } from './store-health.js';

const c1 = { coordinatorId: 'c1', address: 'https://10.0.0.1:8080', epoch: 7n };

function aFollower(viewAgeMs: number): HealthSources {
  return {
    state: {
      ...{ role: 'follower', viewAgeMs, storeRolledBackReason: undefined },
      leader: () => c1,
      view: () => ({}) as ClusterView,
    } satisfies HealthSources['state'],
    storeHealth: new StoreHealth(),
    roles: { listWarnings: () => [] },
    secretKeys: { findProblem: async () => undefined },
  };
}

const CUT_OFF =
  'this coordinator has not reached the state store for 6 s: it serves no reads, which the leader serves if it is reached; check the network to the members of etcd';

describe('the pages of a coordinator that follows', () => {
  it('show the leader and the age of the view', async () => {
    expect(checkHealth(aFollower(412))).toEqual({
      ok: true,
      facts: {
        ...{ role: 'follower', leader: 'c1', leaderAddress: 'https://10.0.0.1:8080', epoch: 7 },
        viewAgeMs: 412,
      },
    });
    expect(await checkReadiness(aFollower(412))).toEqual({ ok: true });
  });

  it('say that it does not reach the store, without a request to restart the process', async () => {
    expect(checkHealth(aFollower(6_200))).toMatchObject({
      ok: true,
      degraded: [CUT_OFF],
      facts: { viewAgeMs: 6_200 },
    });
    expect(await checkReadiness(aFollower(6_200))).toEqual({ ok: false, reasons: [CUT_OFF] });
  });
});

describe('the pages of a coordinator whose disk is full', () => {
  it('answer 200 and say that the store is read-only, until the disk has space again', async () => {
    const storeHealth = new StoreHealth();
    const sources = { ...aFollower(412), storeHealth };
    storeHealth.reportDiskSpace(false);
    const degraded = [
      'store: read-only, disk full: every write is refused, everything else continues',
    ];
    expect(await checkReadiness(sources)).toEqual({ ok: true, degraded });
    expect(checkHealth(sources)).toMatchObject({ ok: true, degraded });
    storeHealth.reportDiskSpace(true);
    expect(await checkReadiness(sources)).toEqual({ ok: true });
  });
});

describe('the page /ready of a coordinator with another key-encryption key than the cluster', () => {
  it('answers 200 and names the reason', async () => {
    const sources = {
      ...aFollower(412),
      secretKeys: { findProblem: async () => 'the key is another one' },
    };
    expect(await checkReadiness(sources)).toEqual({
      ok: true,
      degraded: ['secrets: the key is another one'],
    });
  });
});

import { resolveLimits, type RolloutObserved, type RolloutReplica } from '@cloudless/rollout';
import { toReplicaId } from '@cloudless/base';
import { explainCreates, explainStops, type CreatedVersion } from './step-reasons.js';

const aReplica = (changes: Partial<RolloutReplica> = {}): RolloutReplica => ({
  id: toReplicaId('web-1'),
  version: 1,
  available: true,
  desired: 'running',
  lost: false,
  draining: false,
  createdSequence: 1,
  ...changes,
});
/** A workload that is rolled to version 2. */
const anObserved = (want: number, changes: Partial<RolloutObserved> = {}): RolloutObserved => ({
  ...resolveLimits({ desired: want }),
  version: 2,
  replicas: [],
  ...changes,
});
const ofVersion = (version: number, count: number, present: number): CreatedVersion => ({
  version,
  count,
  present,
  isWanted: version === 2,
});
const blueGreen = { kind: 'blueGreen', activeVersion: 1, maySwitch: false } as const;

describe('explainCreates', () => {
  it.each([
    {
      name: 'the first replicas',
      observed: anObserved(3),
      counts: { created: [ofVersion(2, 3, 0)], present: 0, staying: 0 },
      text: 'version 2: 3 wanted, 0 present',
    },
    {
      name: 'a replacement in an update, with the limit of live replicas',
      observed: anObserved(3),
      counts: { created: [ofVersion(2, 1, 1)], present: 3, staying: 3 },
      text: 'version 2: 3 wanted, 1 present, at most 4 live',
    },
    {
      name: 'a replacement beside a draining replica, which allows one more',
      observed: anObserved(3, { replicas: [aReplica({ draining: true })] }),
      counts: { created: [ofVersion(2, 1, 2)], present: 2, staying: 3 },
      text: 'version 2: 3 wanted, 2 present, at most 5 live',
    },
    {
      name: 'replicas of the previous version while a failed rollout is scaled up',
      observed: anObserved(6, { paused: true, baseVersion: 1 }),
      counts: { created: [ofVersion(1, 3, 2)], present: 3, staying: 3 },
      text: 'version 1: 6 wanted of all versions, 3 present',
    },
    {
      name: 'replicas of two versions at a canary step',
      observed: anObserved(6, { strategy: { kind: 'rollingUpdate', updated: 2 }, baseVersion: 1 }),
      counts: { created: [ofVersion(1, 2, 2), ofVersion(2, 1, 1)], present: 3, staying: 3 },
      text: '2 of version 1, 1 of version 2: 6 wanted of all versions, 3 present',
    },
    {
      name: 'the new set of a blue/green rollout, beside the whole active set',
      observed: anObserved(2, { strategy: blueGreen }),
      counts: { created: [ofVersion(2, 2, 0)], present: 2, staying: 2 },
      text: 'version 2: 2 wanted, 0 present, at most 4 live',
    },
    {
      name: 'a replacement in the active set of a blue/green rollout',
      observed: anObserved(2, { strategy: blueGreen }),
      counts: { created: [ofVersion(1, 1, 1)], present: 3, staying: 3 },
      text: 'version 1: 2 wanted, 1 present, at most 4 live',
    },
    {
      name: 'replicas of both sets of a blue/green rollout',
      observed: anObserved(5, { strategy: blueGreen }),
      counts: { created: [ofVersion(1, 3, 2), ofVersion(2, 3, 2)], present: 4, staying: 4 },
      text: '3 of version 1, 3 of version 2: 5 wanted of each version',
    },
  ])('explains $name', ({ observed, counts, text }) => {
    expect(explainCreates(observed, counts)).toBe(text);
  });
});

describe('explainStops', () => {
  const [old, updated] = [aReplica(), aReplica({ version: 2 })];
  const remaining = '2 available replicas remain, min_available is 1';

  it.each([
    { name: 'an update', replicas: [old], reason: 'replaced by version 3' },
    { name: 'a scale-down', replicas: [updated, updated], reason: 'only 2 are wanted' },
    {
      name: 'an update together with a scale-down',
      replicas: [old, updated],
      reason: '1 replaced by version 3; only 2 are wanted',
    },
    {
      name: 'a scale-down during a pause',
      replicas: [old, updated],
      changes: { paused: true },
      reason: 'only 2 are wanted',
    },
    {
      name: 'a scale-down of both sets of a blue/green rollout',
      replicas: [old, updated],
      changes: { strategy: blueGreen },
      reason: 'only 2 are wanted',
    },
    {
      name: 'the end of the previous set of a blue/green rollout',
      replicas: [old, old],
      changes: { strategy: { ...blueGreen, activeVersion: 2 } },
      reason: 'replaced by version 3',
    },
    {
      name: 'a drain',
      replicas: [aReplica({ draining: true })],
      changes: { isNodeDraining: true },
      reason: 'the node is being drained',
    },
  ])('explains $name', ({ replicas, changes = {}, reason }) => {
    const facts = { want: 2, version: 2, shownVersion: 3, minAvailable: 1, available: 2 };
    expect(explainStops({ ...facts, isNodeDraining: false, replicas, ...changes })).toBe(
      `${reason}; ${remaining}`,
    );
  });
});

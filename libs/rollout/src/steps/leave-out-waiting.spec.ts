import fc from 'fast-check';
import {
  decideNextSteps,
  mayLeaveOutWaiting,
  resolveLimits,
  type RolloutObserved,
  type RolloutReplica,
} from '../index.js';
import { aReplica, anObserved, someReplicas } from '../testing/builders.js';

/** Waiting replicas of version 1, some of which the placer has refused. */
const waitingReplicas = (count: number, refused: number): RolloutReplica[] =>
  Array.from({ length: count }, (_, index) =>
    aReplica(100 + index, {
      available: false,
      ...(index < refused ? { unplaced: 'no node fits' } : {}),
    }),
  );

const arbOther = fc.record({
  available: fc.boolean(),
  notYetAvailable: fc.boolean(),
  lost: fc.boolean(),
  desired: fc.constantFrom('running' as const, 'running' as const, 'stopped' as const),
});

describe('decideNextSteps with replicas that are only counted', () => {
  it('decides and explains as with every waiting replica', () => {
    fc.assert(
      fc.property(
        fc.record({ maxSurge: fc.nat(3), maxUnavailable: fc.nat(4), minAvailable: fc.nat(8) }),
        fc.nat(6),
        fc.array(arbOther, { maxLength: 6 }),
        fc.nat(6),
        fc.nat(6),
        fc.constantFrom<RolloutObserved['strategy']>(undefined, { kind: 'rollingUpdate' }),
        (limits, missing, others, waiting, refused, strategy) => {
          const replicas = others.map((changes, index) => aReplica(index + 1, changes));
          const staying = replicas.filter(({ lost, desired }) => !lost && desired === 'running');
          const observed: RolloutObserved = {
            ...resolveLimits({ desired: staying.length + waiting + missing, ...limits }),
            version: 1,
            replicas,
            ...(strategy === undefined ? {} : { strategy }),
          };
          expect(mayLeaveOutWaiting(observed, waiting)).toBe(true);
          const all = [...replicas, ...waitingReplicas(waiting, refused)];
          expect(decideNextSteps({ ...observed, waiting })).toEqual(
            decideNextSteps({ ...observed, replicas: all }),
          );
        },
      ),
    );
  });

  const observed = anObserved({ version: 1, want: 6, replicas: someReplicas(2) });
  it.each<{ readonly name: string; readonly changes: Partial<RolloutObserved> }>([
    { name: 'more replicas than wanted', changes: { want: 5 } },
    { name: 'a replica of another version', changes: { replicas: [aReplica(1, { version: 2 })] } },
    { name: 'a draining replica', changes: { replicas: [aReplica(1, { draining: true })] } },
    { name: 'a forced stop', changes: { replicas: [aReplica(1, { forced: true })] } },
    { name: 'a pause', changes: { paused: true } },
    { name: 'another base version', changes: { baseVersion: 2 } },
    { name: 'a canary step', changes: { strategy: { kind: 'rollingUpdate', updated: 1 } } },
    { name: 'RECREATE', changes: { strategy: { kind: 'recreate' } } },
    { name: 'one replica per node', changes: { globalTargets: ['n1'] } },
  ])('needs every waiting replica with $name', ({ changes }) => {
    expect(mayLeaveOutWaiting(observed, 4)).toBe(true);
    expect(mayLeaveOutWaiting({ ...observed, ...changes }, 4)).toBe(false);
  });
});

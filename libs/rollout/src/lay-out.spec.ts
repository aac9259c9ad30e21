import { layOut, resolveLimits, type RolloutObserved } from './index.js';
import { aReplica, anObserved, someReplicas } from './testing/builders.js';

/** `+` adds, `-id` stops; decisions apart by `|`; each with ready and live counts after it. */
const sketch = (observed: RolloutObserved): string[] =>
  layOut(observed).steps.map(
    ({ step, decision, ready, live }) =>
      `${decision}: ${step.kind === 'createReplica' ? '+' : `-${step.replicaId}`} ${ready}/${live}`,
  );

describe('layOut', () => {
  it('shows an update that surges first', () => {
    expect(sketch(anObserved({ minAvailable: 3, replicas: someReplicas(3) }))).toEqual([
      '0: + 3/4',
      '1: -w-3 3/4',
      '2: + 3/4',
      '3: -w-2 3/4',
      '4: + 3/4',
      '5: -w-1 3/4',
    ]);
  });

  it('shows an update that adds and takes at the same time', () => {
    const laidOut = layOut(anObserved({ replicas: someReplicas(3) }));
    expect(laidOut).toMatchObject({ verdict: { kind: 'completes' }, lowestReady: 2, highestLive: 4 });
  });

  it('says that limits leave no move, and takes no step', () => {
    const limits = resolveLimits({ desired: 3, maxSurge: 0, minAvailable: 3 });
    expect(layOut(anObserved({ ...limits, replicas: someReplicas(3) }))).toEqual({
      steps: [],
      verdict: {
        kind: 'stuck',
        reason: { kind: 'impossibleLimits', text: 'max_surge 0 and min_available 3 of 3 leave no possible move' },
      },
      lowestReady: 3,
      highestLive: 3,
    });
  });

  it('counts what is not ready at the start', () => {
    const replicas = [aReplica(1), aReplica(2, { ready: false }), aReplica(3, { lost: true })];
    expect(layOut(anObserved({ want: 2, minAvailable: 1, replicas }))).toMatchObject({
      lowestReady: 1,
      verdict: { kind: 'completes' },
    });
  });

  it('lays out 10 000 replicas, one at a time', () => {
    const limits = resolveLimits({ desired: 10_000 });
    const laidOut = layOut(anObserved({ ...limits, replicas: someReplicas(10_000) }));
    expect(laidOut).toMatchObject({ verdict: { kind: 'completes' }, lowestReady: 9_999, highestLive: 10_001 });
    expect(laidOut.steps).toHaveLength(20_000);
  });
});

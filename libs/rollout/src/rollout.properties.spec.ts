import fc from 'fast-check';
import { layOut, nextSteps, resolveLimits, type RolloutObserved, type RolloutReplica } from './index.js';
import { aReplica, anObserved, someReplicas } from './testing/builders.js';
import { World } from './testing/world.js';

const seldom = fc.nat(5).map((value) => value === 0);

const arbReplica: fc.Arbitrary<Omit<RolloutReplica, 'id' | 'createdSequence'>> = fc
  .record({
    version: fc.integer({ min: 1, max: 3 }),
    ready: fc.boolean(),
    stopped: seldom,
    lost: seldom,
    draining: seldom,
    silent: seldom,
  })
  .map(({ version, ready, stopped, lost, draining, silent }) => ({
    version,
    ready: ready && !silent,
    desired: stopped ? 'stopped' : 'running',
    lost,
    draining,
    unproven: silent,
  }));

/** What a user may ask for, sensible or not. */
const arbSpec = fc
  .record({
    desired: fc.nat(7),
    maxSurge: fc.nat(3),
    maxUnavailable: fc.nat(4),
    minAvailable: fc.nat(8),
    surgeUnset: fc.boolean(),
  })
  .map(({ desired, maxSurge, maxUnavailable, minAvailable, surgeUnset }) => ({
    desired,
    maxUnavailable,
    minAvailable,
    ...(surgeUnset ? {} : { maxSurge }),
  }));

/** Any world: replicas of three versions, unready, lost, draining, silent and leaving in any combination. */
const arbObserved: fc.Arbitrary<RolloutObserved> = fc
  .record({
    spec: arbSpec,
    version: fc.integer({ min: 1, max: 3 }),
    paused: seldom,
    replicas: fc.array(arbReplica, { maxLength: 12 }),
  })
  .map(({ spec, version, paused, replicas }) => ({
    ...resolveLimits(spec),
    version,
    paused,
    replicas: replicas.map((replica, index) => aReplica(index + 1, replica)),
  }));

/** One thing that happens: what, to which replica, and how a decision is taken apart. */
const arbEvent = fc.record({ what: fc.nat(15), who: fc.nat(20), turn: fc.nat(6), count: fc.nat(6), spec: arbSpec });
type Event = typeof arbEvent extends fc.Arbitrary<infer T> ? T : never;

function happen(world: World, { what, who, turn, count, spec }: Event): void {
  switch (what) {
    case 0:
      return world.change(who, { ready: false, unproven: false });
    case 1:
      return world.change(who, { ready: false, unproven: true });
    case 2:
      return world.change(who, { lost: true });
    case 3:
      return world.change(who, { lost: false });
    case 4:
      return world.change(who, { draining: turn > 2 });
    case 5:
      return world.remove(who);
    case 6:
      return turn === 0 ? world.scale(spec) : undefined;
    case 7:
      return turn === 0 ? world.update(count) : undefined;
    case 8:
    case 9:
    case 10:
      return world.change(who, { ready: true, unproven: false });
    default:
      world.take(turn, count === 0 ? Infinity : count);
  }
}

/** The most decisions a world of this size may need: each stops or adds at least one, with waits between. */
const MOST_DECISIONS = 200;

function runUntilSettled(world: World): string {
  for (let round = 0; round < MOST_DECISIONS; round += 1) {
    const decision = world.take();
    if (decision.kind === 'converged') return 'converged';
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec') return decision.reason.kind;
    world.settle();
  }
  return 'no end';
}

describe('nextSteps, in any world', () => {
  it('keeps floor, ceiling and what shall stay, whatever happens between and within decisions', () => {
    let steps = 0;
    fc.assert(
      fc.property(arbObserved, fc.array(arbEvent, { maxLength: 150, size: 'max' }), (observed, events) => {
        const world = new World(observed);
        for (const event of events) happen(world, event);
        steps += world.steps;
      }),
      { numRuns: 4_000 },
    );
    expect(steps).toBeGreaterThan(20_000);
  });

  it('ends at exactly the wanted count of the wanted version once failures stop, or says that the limits leave no move', () => {
    fc.assert(
      fc.property(arbObserved, fc.array(arbEvent, { maxLength: 30 }), (observed, events) => {
        const world = new World({ ...observed, paused: false });
        for (const event of events) happen(world, event);
        const end = runUntilSettled(world);
        const { want, minAvailable, maxSurge, version, replicas } = world.view();
        const live = replicas.filter((replica) => !replica.lost);
        if (end === 'impossibleLimits') expect({ maxSurge, minAvailable }).toEqual({ maxSurge: 0, minAvailable: want });
        else
          expect({ end, count: live.length, right: live.every((r) => r.version === version && !r.draining) }).toEqual({
            end: 'converged',
            count: want,
            right: true,
          });
      }),
      { numRuns: 4_000 },
    );
  });

  it('always has a move when the limits allow one, also with everything old, and keeps the floor on the whole way', () => {
    fc.assert(
      fc.property(arbSpec, fc.nat(9), (spec, count) => {
        const limits = resolveLimits(spec);
        fc.pre(limits.maxSurge > 0 || limits.minAvailable < limits.want);
        const world = new World(anObserved({ ...limits, replicas: someReplicas(count) }));
        expect(runUntilSettled(world)).toBe('converged');
      }),
      { numRuns: 2_000 },
    );
  });

  it('paused, ends at the wanted count and stops no replica for its version', () => {
    fc.assert(
      fc.property(arbObserved, (observed) => {
        const world = new World({ ...observed, paused: true });
        const end = runUntilSettled(world);
        expect(['converged', 'paused']).toContain(end);
        expect(world.live).toBe(observed.want);
      }),
    );
  });

  it('makes progress with replicas becoming ready and stopping one at a time, in any order', () => {
    fc.assert(
      fc.property(arbObserved, fc.infiniteStream(fc.nat(100)), (observed, choices) => {
        const world = new World({ ...observed, paused: false });
        for (let round = 0; round < MOST_DECISIONS * 2; round += 1) {
          const decision = world.take();
          if (decision.kind === 'steps') continue;
          if (decision.kind === 'converged' || decision.wakeOn.kind === 'spec') return;
          const { replicas } = world.view();
          const open = replicas.flatMap((r, index) => (!r.lost && (r.desired === 'stopped' || !r.ready) ? [index] : []));
          const chosen = open[choices.next().value % open.length] ?? 0;
          if (replicas[chosen]?.desired === 'stopped') world.remove(chosen);
          else world.change(chosen, { ready: true, unproven: false });
        }
        throw new Error('no end');
      }),
      { numRuns: 2_000 },
    );
  });

  it('does not depend on the order of replicas', () => {
    fc.assert(
      fc.property(arbObserved, fc.nat(11), (observed, turn) => {
        const { replicas } = observed;
        const turned = [...replicas.slice(turn), ...replicas.slice(0, turn)].reverse();
        expect(nextSteps({ ...observed, replicas: turned })).toEqual(nextSteps(observed));
      }),
      { numRuns: 2_000 },
    );
  });

  it('adds nothing and stops nothing when all wanted replicas of the version are there, ready or not', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom({ ready: true }, { ready: false }, { ready: false, unproven: true }), { maxLength: 9 }),
        (states) => {
          const replicas = states.map((state, index) => ({ ...someReplicas(1, { version: 2 }, index)[0]!, ...state }));
          expect(nextSteps(anObserved({ want: replicas.length, replicas })).kind).not.toBe('steps');
        },
      ),
    );
  });
});

/** Takes every decision of `nextSteps` literally, as `layOut` promises to. */
function drive(observed: RolloutObserved): readonly unknown[] {
  const heard = observed.replicas.map((r) => (r.unproven === true ? { ...r, ready: true, unproven: false } : r));
  const world = new World({ ...observed, replicas: heard });
  const taken: unknown[] = [];
  for (;;) {
    const decision = nextSteps(world.view());
    if (decision.kind === 'converged' || (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec')) return taken;
    if (decision.kind === 'steps') taken.push(...decision.steps);
    world.take();
    world.settle();
  }
}

describe('layOut, in any world', () => {
  it('takes exactly the decisions of nextSteps, and promises nothing below the floor or above the ceiling', () => {
    fc.assert(
      fc.property(arbObserved, (observed) => {
        const laidOut = layOut(observed);
        expect(laidOut.steps.map(({ step }) => step)).toEqual(drive(observed));
        const live = observed.replicas.filter((r) => !r.lost);
        const readyAtStart = live.filter((r) => r.desired === 'running' && (r.ready || r.unproven === true)).length;
        const draining = live.filter((r) => r.draining).length;
        expect(laidOut.lowestReady).toBeGreaterThanOrEqual(Math.min(readyAtStart, observed.minAvailable));
        expect(laidOut.highestLive).toBeLessThanOrEqual(Math.max(live.length, observed.want + observed.maxSurge + draining));
      }),
      { numRuns: 3_000 },
    );
  });
});

import { assert } from '@cloudless/base';
import fc from 'fast-check';
import { layOut, nextSteps, resolveLimits, type LaidOut, type RolloutObserved } from './index.js';
import { anObserved, someReplicas } from './testing/builders.js';
import { ceilingOf, readyCount } from './testing/promises.js';
import { arbEvent, arbObserved, arbSpec, happen, KINDS } from './testing/arbitraries.js';
import { World } from './testing/world.js';

/**
 * The most decisions a world of this size may need: each stops or adds at least one, with waits
 * between.
 */
const MOST_DECISIONS = 200;

/** All steps that were taken and checked. */
let steps = 0;

/** Lets time pass without failures, and permits what asks for it. @returns How it ends. */
function runUntilSettled(world: World): string {
  for (let round = 0; round < MOST_DECISIONS; round += 1) {
    const decision = world.take();
    if (decision.kind === 'converged') return 'converged';
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec') return decision.reason.kind;
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'permission') world.permit();
    world.settle();
  }
  return 'no end';
}

/** Converged means: exactly what was asked for, and nothing else. */
function checkEnd(world: World, end: string): void {
  const { want, minAvailable, maxSurge, version, strategy, seats } = world.view();
  if (end === 'impossibleLimits') {
    assert(
      maxSurge === 0 && minAvailable === want && strategy?.kind === 'rollingUpdate',
      'limits that leave a move',
    );
    return;
  }
  assert(end === 'converged', `ends: ${end}`);
  assert(world.live.length === want, `${world.live.length} of ${want} live`);
  assert(
    world.live.every(
      (one) => one.ready && one.version === version && !one.draining && one.forced !== true,
    ),
    'something is left that shall not be',
  );
  const places = world.live.map(({ nodeId }) => nodeId ?? '').sort();
  assert(
    seats === undefined || want === 0 || places.join() === [...seats].sort().join(),
    `replicas on ${places.join()}`,
  );
  assert(
    strategy?.kind !== 'blueGreen' || strategy.activeVersion === version || want === 0,
    'the new set does not serve',
  );
}

describe.each(KINDS)('nextSteps, %s, in any world', (kind) => {
  it('keeps floor, ceiling, what shall stay and the rules of its strategy, whatever happens between and within decisions', () => {
    fc.assert(
      fc.property(
        arbObserved(kind),
        fc.array(arbEvent, { maxLength: 150, size: 'max' }),
        (observed, events) => {
          const world = new World(observed);
          for (const event of events) happen(world, event);
          steps += world.steps;
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('ends at exactly the wanted count of the wanted version once failures stop, or says that the limits leave no move', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.array(arbEvent, { maxLength: 30 }), (observed, events) => {
        const world = new World(observed);
        for (const event of events) happen(world, event);
        world.wants({ paused: false });
        checkEnd(world, runUntilSettled(world));
        steps += world.steps;
      }),
      { numRuns: 2_500 },
    );
  });

  it('paused, ends at the wanted count and stops nothing for its version', () => {
    fc.assert(
      fc.property(arbObserved(kind), (observed) => {
        const world = new World({ ...observed, paused: true });
        const end = runUntilSettled(world);
        const { want, maxSurge, strategy } = world.view();
        assert(['converged', 'paused'].includes(end), `ends: ${end}`);
        const serving =
          strategy?.kind === 'blueGreen' ? readyCount(world.view()) : world.live.length;
        const most = strategy?.kind === 'rollingUpdate' && want > 0 ? want + maxSurge : want;
        assert(serving >= want && serving <= most, `${serving} of ${want}`);
        steps += world.steps;
      }),
      { numRuns: 500 },
    );
  });

  it('makes progress with replicas becoming ready and stopping one at a time, in any order', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.infiniteStream(fc.nat(100)), (observed, choices) => {
        const world = new World({ ...observed, paused: false });
        for (let round = 0; round < MOST_DECISIONS * 2; round += 1) {
          const decision = world.take();
          if (decision.kind === 'steps') continue;
          if (decision.kind === 'converged' || decision.wakeOn.kind === 'spec')
            return void (steps += world.steps);
          if (decision.wakeOn.kind === 'permission') world.permit();
          else letOneGoOn(world, choices.next().value);
        }
        throw new Error('no end');
      }),
      { numRuns: 700 },
    );
  });

  it('does not depend on the order of replicas', () => {
    fc.assert(
      fc.property(arbObserved(kind), fc.nat(11), (observed, turn) => {
        const { replicas, seats } = observed;
        const turned = [...replicas.slice(turn), ...replicas.slice(0, turn)].reverse();
        const other = {
          ...observed,
          replicas: turned,
          ...(seats === undefined ? {} : { seats: [...seats].reverse() }),
        };
        expect(nextSteps(other)).toEqual(nextSteps(observed));
      }),
      { numRuns: 500 },
    );
  });

  it('is laid out with exactly the decisions of nextSteps, and promises nothing below the floor or above the ceiling', () => {
    fc.assert(
      fc.property(arbObserved(kind), (observed) => {
        const laidOut = layOut(observed, {});
        const driven = drive(observed);
        expect(inAnyOrderOfSeats(observed, toldApart(laidOut))).toEqual(
          inAnyOrderOfSeats(observed, driven.steps),
        );
        const left = laidOut.steps
          .filter(({ step }) => step.kind !== 'stepReached')
          .map(({ ready, live }) => [ready, live]);
        expect({ left, end: laidOut.verdict.kind }).toEqual({ left: driven.left, end: driven.end });
        const heard = withAllHeard(observed);
        const floor = Math.min(readyCount(heard), observed.minAvailable);
        const live = observed.replicas.filter((replica) => !replica.lost).length;
        assert(
          observed.strategy?.kind === 'recreate' || laidOut.lowestReady >= floor,
          `${laidOut.lowestReady} of ${floor}`,
        );
        assert(
          laidOut.highestLive <= Math.max(live, ceilingOf(observed)),
          `${laidOut.highestLive} live`,
        );
      }),
      { numRuns: 700 },
    );
  });
});

/** One replica becomes ready, or has stopped. */
function letOneGoOn(world: World, choice: number): void {
  const { replicas } = world.view();
  const open = replicas.flatMap((one, index) =>
    !one.lost && (one.desired === 'stopped' || !one.ready) ? [index] : [],
  );
  const chosen = open[choice % open.length];
  assert(chosen !== undefined, 'there is something to wait for');
  if (replicas[chosen]?.desired === 'stopped') world.remove(chosen);
  else world.change(chosen, { ready: true, unproven: false });
}

/** Layouts begin with silent nodes being heard. */
const withAllHeard = (observed: RolloutObserved): RolloutObserved => ({
  ...observed,
  replicas: observed.replicas.map((one) =>
    one.unproven === true ? { ...one, ready: true, unproven: false } : one,
  ),
});

/** Takes every decision of `nextSteps` literally, as `layOut` promises to. */
function drive(observed: RolloutObserved) {
  const world = new World(withAllHeard(observed));
  const taken: string[] = [];
  const left: (readonly [number, number])[] = [];
  for (let round = 0; round < MOST_DECISIONS; round += 1) {
    const decision = nextSteps(world.view());
    if (decision.kind === 'converged') return { steps: taken, left, end: 'completes' };
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'spec')
      return { steps: taken, left, end: 'stuck' };
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'permission') world.permit();
    if (decision.kind === 'waiting' && decision.wakeOn.kind === 'replicas') world.settle();
    if (decision.kind !== 'steps') continue;
    for (const step of decision.steps) {
      world.apply(step);
      taken.push(JSON.stringify(step));
      left.push([availableCount(world.view()), world.live.length]);
    }
    world.settle();
  }
  throw new Error('no end');
}

/**
 * The ready replicas that users can reach: in a recreate also those that the floor is not about.
 */
const availableCount = (observed: RolloutObserved): number =>
  readyCount(
    observed.strategy?.kind === 'recreate'
      ? { ...observed, strategy: { kind: 'rollingUpdate' } }
      : observed,
  );

/** The steps of a layout, its made-up ids as those of {@link World}. */
function toldApart({ steps: laid }: LaidOut): readonly string[] {
  const ids = new Map<string, string>();
  return laid.flatMap(({ step }, index) => {
    if (step.kind === 'stepReached') return [];
    if (step.kind === 'createReplica') ids.set(`planned-${index}`, `w-${1_001 + ids.size}`);
    const known =
      step.kind === 'stopReplica'
        ? { ...step, replicaId: ids.get(step.replicaId) ?? step.replicaId }
        : step;
    return [JSON.stringify(known)];
  });
}

/** Which of the empty seats is filled first may differ. */
const inAnyOrderOfSeats = (
  { seats }: RolloutObserved,
  all: readonly string[],
): readonly string[] => (seats === undefined ? all : [...all].sort());

describe('nextSteps, a rolling update', () => {
  it('always has a move when the limits allow one, also with everything old, and keeps the floor on the whole way', () => {
    fc.assert(
      fc.property(arbSpec, fc.nat(9), (spec, count) => {
        const limits = resolveLimits(spec);
        fc.pre(limits.maxSurge > 0 || limits.minAvailable < limits.want);
        const world = new World(anObserved({ ...limits, replicas: someReplicas(count) }));
        expect(runUntilSettled(world)).toBe('converged');
        steps += world.steps;
      }),
      { numRuns: 1_000 },
    );
  });

  it('adds nothing and stops nothing when all wanted replicas of the version are there, ready or not', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.constantFrom({ ready: true }, { ready: false }, { ready: false, unproven: true }),
          { maxLength: 9 },
        ),
        (states) => {
          const replicas = states.map((state, index) => ({
            ...someReplicas(1, { version: 2 }, index)[0]!,
            ...state,
          }));
          expect(nextSteps(anObserved({ want: replicas.length, replicas })).kind).not.toBe('steps');
        },
      ),
    );
  });
});

it('has taken and checked at least 200 000 steps in these worlds', () => {
  expect(steps).toBeGreaterThanOrEqual(200_000);
});

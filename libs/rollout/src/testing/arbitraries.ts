import fc from 'fast-check';
import {
  resolveLimits,
  type RolloutLimitsSpec,
  type RolloutObserved,
  type RolloutReplica,
  type RolloutStrategy,
} from '../index.js';
import { aReplica } from './builders.js';
import type { World } from './world.js';

/** Kinds of rollouts that random workloads are generated for. */
export const KINDS = [
  'rolling update',
  'canary',
  'recreate',
  'blue/green',
  'one per node',
  'recreate one per node',
] as const;
export type Kind = (typeof KINDS)[number];

const seldom = fc.nat(5).map((value) => value === 0);
const arbVersion = fc.integer({ min: 1, max: 3 });
const NODES = ['n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7'];
const arbSeats = fc.subarray(NODES);

const arbReplica = fc
  .record({
    version: arbVersion,
    ready: fc.boolean(),
    stopped: seldom,
    lost: seldom,
    draining: seldom,
    forced: seldom,
    silent: seldom,
    homeless: seldom,
    nodeId: fc.constantFrom(...NODES),
  })
  .map(({ ready, stopped, silent, forced, homeless, ...rest }): Partial<RolloutReplica> => ({
    ...rest,
    ...(homeless ? { unplaced: `no node fits: ${rest.nodeId}` } : {}),
    ready: ready && !silent && !homeless,
    desired: stopped ? ('stopped' as const) : ('running' as const),
    unproven: silent,
    forced: forced && rest.draining,
  }));

/** Random limits, reasonable or not. */
export const arbSpec: fc.Arbitrary<RolloutLimitsSpec & { readonly desired: number }> = fc
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

const arbChoices = fc.record({
  updated: fc.nat(5),
  activeVersion: arbVersion,
  maySwitch: fc.boolean(),
  keepVersion: fc.option(arbVersion, { nil: undefined }),
});

function strategyOf(
  kind: Kind,
  choices: typeof arbChoices extends fc.Arbitrary<infer T> ? T : never,
): RolloutStrategy {
  const { updated, activeVersion, maySwitch, keepVersion } = choices;
  if (kind === 'blue/green')
    return {
      kind: 'blueGreen',
      activeVersion,
      maySwitch,
      ...(keepVersion === undefined ? {} : { keepVersion }),
    };
  if (kind === 'canary') return { kind: 'rollingUpdate', updated };
  return { kind: kind.startsWith('recreate') ? 'recreate' : 'rollingUpdate' };
}

/**
 * Random input: replicas of three versions, each unready, lost, draining, forced, silent or
 * stopping in any combination.
 */
export function arbObserved(kind: Kind): fc.Arbitrary<RolloutObserved> {
  return fc
    .record({
      spec: arbSpec,
      version: arbVersion,
      baseVersion: arbVersion,
      paused: seldom,
      choices: arbChoices,
      seats: arbSeats,
      replicas: fc.array(arbReplica, { maxLength: 12 }),
    })
    .map(({ spec, replicas, choices, seats, ...rest }) => {
      const seated = kind.endsWith('one per node');
      return {
        ...rest,
        ...resolveLimits(seated ? { ...spec, desired: seats.length } : spec),
        ...(seated ? { seats } : {}),
        strategy: strategyOf(kind, choices),
        replicas: replicas.map((replica, index) => aReplica(index + 1, replica)),
      };
    });
}

/** A random event: its kind, the affected replica, and how many steps of a decision are applied. */
export const arbEvent = fc.record({
  what: fc.nat(24),
  who: fc.nat(20),
  turn: fc.nat(6),
  count: fc.nat(6),
  version: arbVersion,
  spec: arbSpec,
  seats: arbSeats,
});
type Event = typeof arbEvent extends fc.Arbitrary<infer T> ? T : never;

export function happen(world: World, event: Event): void {
  const { what, who, turn, count, spec, seats } = event;
  if (what === 0) world.change(who, { ready: false, unproven: false });
  else if (what === 1) world.change(who, { ready: false, unproven: true });
  else if (what === 2) world.change(who, { lost: true });
  else if (what === 3) world.change(who, { lost: false });
  else if (what === 4) world.change(who, { draining: turn > 2, forced: turn === 6 });
  else if (what === 5) world.remove(who);
  else if (what === 6 && turn < 2) world.scale(spec);
  else if (what === 7 && turn < 2) world.seat(seats, spec);
  else if (what === 8 && turn < 3) ask(world, event);
  else if (what < 16) world.change(who, { ready: true, unproven: false });
  else if (what < 18) world.settle();
  else world.take(turn, count === 0 ? Infinity : count);
}

/** A change of the input by a user, or by the end of a canary step or pause. */
function ask(world: World, { count, version }: Event): void {
  const { strategy, paused } = world.view();
  if (count < 2) world.wants({ version });
  else if (count === 2) world.wants({ paused: paused !== true });
  else if (count === 3) world.wants({ baseVersion: version });
  else if (count === 4) world.permit();
  else if (strategy?.kind === 'blueGreen')
    world.wants({ strategy: { ...strategy, keepVersion: version } });
  else if (strategy?.kind === 'rollingUpdate' && world.view().seats === undefined)
    world.wants({ strategy: { kind: 'rollingUpdate', updated: version } });
}

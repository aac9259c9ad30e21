import fc from 'fast-check';
import { definedFields } from '@cloudless/base';
import {
  resolveLimits,
  type RolloutLimitsSpec,
  type RolloutObserved,
  type RolloutReplica,
  type RolloutStrategy,
} from '../index.js';
import { aReplica } from './builders.js';
import type { SimulatedWorkload } from './simulated-workload.js';

/** Kinds of rollouts that random workloads are generated for. */
export const ROLLOUT_KINDS = [
  'rolling update',
  'canary',
  'recreate',
  'blue/green',
  'one per node',
  'recreate one per node',
] as const;
export type RolloutKind = (typeof ROLLOUT_KINDS)[number];

/** True in one of six cases. */
const arbSeldom = fc.nat(5).map((value) => value === 0);
const arbVersion = fc.integer({ min: 1, max: 3 });
const NODES = ['n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7'];
const arbGlobalTargets = fc.subarray(NODES);

const arbReplica = fc
  .record({
    version: arbVersion,
    ready: fc.boolean(),
    stopped: arbSeldom,
    lost: arbSeldom,
    draining: arbSeldom,
    forced: arbSeldom,
    silent: arbSeldom,
    unplaced: arbSeldom,
    nodeId: fc.constantFrom(...NODES),
  })
  .map(({ ready, stopped, silent, forced, unplaced, ...rest }): Partial<RolloutReplica> => ({
    ...rest,
    ...(unplaced ? { unplaced: `no node fits: ${rest.nodeId}` } : {}),
    available: ready && !silent && !unplaced,
    desired: stopped ? ('stopped' as const) : ('running' as const),
    notYetAvailable: silent,
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

function toStrategy(
  kind: RolloutKind,
  choices: typeof arbChoices extends fc.Arbitrary<infer T> ? T : never,
): RolloutStrategy {
  const { updated, activeVersion, maySwitch, keepVersion } = choices;
  if (kind === 'blue/green')
    return {
      kind: 'blueGreen',
      activeVersion,
      maySwitch,
      ...definedFields({ keepVersion }),
    };
  if (kind === 'canary') return { kind: 'rollingUpdate', updated };
  return { kind: kind.startsWith('recreate') ? 'recreate' : 'rollingUpdate' };
}

/**
 * Random input: replicas of three versions, each unready, lost, draining, forced, silent or
 * stopping in any combination.
 */
export function arbObserved(kind: RolloutKind): fc.Arbitrary<RolloutObserved> {
  return fc
    .record({
      spec: arbSpec,
      version: arbVersion,
      baseVersion: arbVersion,
      paused: arbSeldom,
      choices: arbChoices,
      globalTargets: arbGlobalTargets,
      replicas: fc.array(arbReplica, { maxLength: 12 }),
    })
    .map(({ spec, replicas, choices, globalTargets, ...rest }) => {
      const isGlobal = kind.endsWith('one per node');
      return {
        ...rest,
        ...resolveLimits(isGlobal ? { ...spec, desired: globalTargets.length } : spec),
        ...(isGlobal ? { globalTargets } : {}),
        strategy: toStrategy(kind, choices),
        replicas: replicas.map((replica, index) => aReplica(index + 1, replica)),
      };
    });
}

/** A random event for {@link applyEvent}. */
export const arbEvent = fc.record({
  /** Number of the event's kind. More than half of the numbers are decisions or progress. */
  kind: fc.nat(24),
  /** Index of the affected replica. */
  index: fc.nat(20),
  /** Rotation of the steps of a decision; also makes rare events rarer. */
  turn: fc.nat(6),
  /** Number of applied steps of a decision, 0 for all; also the kind of a user's request. */
  count: fc.nat(6),
  version: arbVersion,
  spec: arbSpec,
  globalTargets: arbGlobalTargets,
});
type Event = typeof arbEvent extends fc.Arbitrary<infer T> ? T : never;

/** Applies a random event to a simulated workload: a failure, progress, a request or a decision. */
export function applyEvent(workload: SimulatedWorkload, event: Event): void {
  const { kind, index, turn, count, spec, globalTargets } = event;
  if (kind === 0) workload.changeReplica(index, { available: false, notYetAvailable: false });
  else if (kind === 1) workload.changeReplica(index, { available: false, notYetAvailable: true });
  else if (kind === 2) workload.changeReplica(index, { lost: true });
  else if (kind === 3) workload.changeReplica(index, { lost: false });
  else if (kind === 4) workload.changeReplica(index, { draining: turn > 2, forced: turn === 6 });
  else if (kind === 5) workload.removeReplica(index);
  else if (kind === 6 && turn < 2) workload.scale(spec);
  else if (kind === 7 && turn < 2) workload.setGlobalTargets(globalTargets, spec);
  else if (kind === 8 && turn < 3) applyRequest(workload, event);
  else if (kind < 16) workload.changeReplica(index, { available: true, notYetAvailable: false });
  else if (kind < 18) workload.settle();
  else workload.applyNextDecision(turn, count === 0 ? Infinity : count);
}

/** A change of the input by a user, or by the end of a canary step or pause. */
function applyRequest(workload: SimulatedWorkload, { count, version }: Event): void {
  const { strategy, paused } = workload.observe();
  if (count < 2) workload.update({ version });
  else if (count === 2) workload.update({ paused: paused !== true });
  else if (count === 3) workload.update({ baseVersion: version });
  else if (count === 4) workload.grantPermission();
  else if (strategy?.kind === 'blueGreen')
    workload.update({ strategy: { ...strategy, keepVersion: version } });
  else if (strategy?.kind === 'rollingUpdate' && workload.observe().globalTargets === undefined)
    workload.update({ strategy: { kind: 'rollingUpdate', updated: version } });
}

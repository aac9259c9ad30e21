import type { SimRandom } from '../parts/sim-random.js';

/** Kinds of faults; `faults.ts` and `coordinator-faults.ts` inject them. */
export type FaultKind = SingleFaultKind | CoordinatorFaultKind;

/** Faults of worlds with several coordinators. */
export type CoordinatorFaultKind =
  | 'killMember'
  | 'killAllCoordinators'
  | 'pauseMember'
  | 'cutStore'
  | 'stallStore'
  | 'lossyStore'
  | 'storeStops'
  | 'lagMember'
  | 'cutPeers'
  | 'cutAgentFromCoordinator'
  | 'isolateNode'
  | 'stepDown';

/** Faults of all worlds. */
export type SingleFaultKind =
  | 'killCoordinator'
  | 'crashCoordinator'
  | 'pauseCoordinator'
  | 'killAgent'
  | 'crashAgent'
  | 'leaveAgent'
  | 'pauseAgent'
  | 'rebootMachine'
  | 'machineVanishes'
  | 'nodeJoins'
  | 'stall'
  | 'oneWay'
  | 'cut'
  | 'reset'
  | 'cutAll'
  | 'lossyMessages'
  | 'lossyCalls'
  | 'slowDisk'
  | 'fullDisk'
  | 'slowAgentDisk'
  | 'fullAgentDisk'
  | 'slowView'
  | 'containerCrashes'
  | 'containerExits'
  | 'containersFlap'
  | 'neverReady';

/** Relative frequency of each kind in worlds that have the kind. Machines are rarely destroyed. */
const WEIGHTS: Readonly<Record<SingleFaultKind, number>> = {
  killCoordinator: 1.5,
  crashCoordinator: 2,
  pauseCoordinator: 1,
  killAgent: 2,
  crashAgent: 3,
  leaveAgent: 2,
  pauseAgent: 1,
  rebootMachine: 0.7,
  machineVanishes: 0.3,
  nodeJoins: 0.5,
  stall: 1.5,
  oneWay: 1.5,
  cut: 1.5,
  reset: 1.5,
  cutAll: 0.3,
  lossyMessages: 1,
  lossyCalls: 1,
  slowDisk: 1,
  fullDisk: 0.5,
  slowAgentDisk: 1,
  fullAgentDisk: 0.5,
  slowView: 1,
  containerCrashes: 3,
  containerExits: 1,
  containersFlap: 0.7,
  neverReady: 0.7,
};

/** Relative frequency of the faults of worlds with several coordinators. */
export const COORDINATOR_WEIGHTS: Readonly<Record<CoordinatorFaultKind, number>> = {
  killMember: 2,
  killAllCoordinators: 0.5,
  pauseMember: 2,
  cutStore: 2,
  stallStore: 1.5,
  lossyStore: 1.5,
  storeStops: 0.5,
  lagMember: 1,
  cutPeers: 1.5,
  cutAgentFromCoordinator: 2,
  isolateNode: 1.5,
  stepDown: 1.5,
};

/** Parameters of one world. */
export interface WorldPlan {
  /** With one, the coordinator has its own disk; several share a store and elect their leader. */
  readonly coordinators: number;
  readonly nodes: number;
  readonly users: number;
  /** Duration of faults and user calls, milliseconds. */
  readonly turmoilMs: number;
  /** Shortest and longest pause between two faults, milliseconds. */
  readonly pauseMs: readonly [number, number];
  readonly weights: Readonly<Partial<Record<FaultKind, number>>>;
  /** Number of changes that the store retains. */
  readonly historyLimit: number;
  /** True: clocks run at 0.9 to 1.1 of the right speed, and wall clocks have an offset. */
  readonly drift: boolean;
  /** CPU of a node, thousandths of a core. */
  readonly cpuMillis: number;
  /** True: nodes run containers too, and one of three workloads uses a host port. */
  readonly hostPorts: boolean;
  /** True: users create services too, and a network proxy runs on each node. */
  readonly services: boolean;
  /** True: some workloads have `disconnect.mode` EXCLUSIVE. */
  readonly exclusive: boolean;
  /**
   * True: coordinators that follow serve reads and forward other calls, as the program does. False:
   * they refuse all calls and name the leader, which costs half the time.
   */
  readonly forwards: boolean;
}

/** Ranges from a rapid sequence of faults to pauses in which the cluster settles, milliseconds. */
const PAUSES_MS: readonly [WorldPlan['pauseMs'], ...WorldPlan['pauseMs'][]] = [
  [100, 800],
  [300, 1_500],
  [800, 3_000],
];

/**
 * Draws a plan. Most worlds are small, some are large. Each world has only some kinds of faults, so
 * that no kind hides the others.
 */
export function planWorld(random: SimRandom): WorldPlan {
  const isLarge = random.chance(0.04);
  const kinds = (Object.keys(WEIGHTS) as SingleFaultKind[]).filter((kind) => kind !== 'leaveAgent');
  const share = random.pick([0.15, 0.4, 0.8]);
  const weights = Object.fromEntries(
    kinds.filter(() => random.chance(share)).map((kind) => [kind, WEIGHTS[kind]]),
  );
  // Agents that are killed in a world also leave in good order there.
  if ('killAgent' in weights) weights['leaveAgent'] = WEIGHTS.leaveAgent;
  return {
    coordinators: 1,
    nodes: isLarge
      ? random.wholeNumber(20, 40)
      : random.chance(0.15)
        ? random.wholeNumber(7, 12)
        : random.wholeNumber(3, 6),
    users: random.wholeNumber(1, 3),
    turmoilMs: isLarge ? random.between(4_000, 7_000) : random.between(6_000, 14_000),
    pauseMs: random.pick(PAUSES_MS),
    weights,
    historyLimit: random.chance(0.5) ? 100_000 : random.wholeNumber(20, 200),
    drift: random.chance(0.5),
    cpuMillis: random.pick([1_500, 4_000]),
    hostPorts: false,
    services: false,
    exclusive: false,
    forwards: false,
  };
}

/** Seeds from here on are worlds with several coordinators; those below are worlds with one. */
export const FIRST_SEED_OF_GROUPS = 1_000_000;

/**
 * Draws a plan with several coordinators: that of {@link planWorld}, with a share of the faults of
 * coordinators and links to the store in addition.
 */
export function planGroupWorld(random: SimRandom): WorldPlan {
  const plan = planWorld(random.fork());
  const share = random.pick([0.25, 0.5, 0.9]);
  const kinds = (Object.keys(COORDINATOR_WEIGHTS) as CoordinatorFaultKind[]).filter(
    (kind) => kind !== 'cutPeers',
  );
  const added: CoordinatorFaultKind[] = kinds.filter(() => random.chance(share));
  const exclusive = random.chance(0.4);
  const coordinators = random.chance(0.75) ? 3 : random.pick([2, 5]);
  // Long enough for isolated nodes to be declared lost with their EXCLUSIVE replicas.
  const turmoilMs = exclusive ? random.between(18_000, 28_000) : plan.turmoilMs;
  // Drawn last, so that worlds without forwarding keep their random streams.
  const forwards = random.chance(0.5);
  if (forwards && random.chance(share)) added.push('cutPeers');
  return {
    ...plan,
    coordinators,
    nodes: Math.min(plan.nodes, 12),
    exclusive,
    forwards,
    turmoilMs,
    weights: {
      ...plan.weights,
      ...Object.fromEntries(added.map((kind) => [kind, COORDINATOR_WEIGHTS[kind]])),
    },
  };
}

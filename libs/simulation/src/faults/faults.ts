import type { SimNode } from '../parts/sim-node.js';
import type { SimRandom } from '../parts/sim-random.js';
import type { SimCluster } from '../sim-cluster/sim-cluster.js';
import { injectCoordinatorFault } from './coordinator-faults.js';
import {
  COORDINATOR_WEIGHTS,
  type CoordinatorFaultKind,
  type FaultKind,
  type SingleFaultKind,
} from './fault-plan.js';

/** Durations of faults: most end well within a lease of 3 s, the others may outlast the lease. */
const SHORT_MS = [50, 900] as const;
const LONG_MS = [1_000, 6_000] as const;
/**
 * Largest share of machines that may be destroyed permanently; the rest must have capacity for
 * their replicas.
 */
const MAX_DESTROYED_SHARE = 0.25;

/**
 * Injects one fault.
 * @returns A description, or undefined when the fault was not possible at this moment.
 */
export function injectFault(
  world: SimCluster,
  kind: FaultKind,
  random: SimRandom,
): string | undefined {
  const node = random.pick(world.nodes.filter(({ isDestroyed }) => !isDestroyed));
  const durationMs = random.chance(0.6) ? random.between(...SHORT_MS) : random.between(...LONG_MS);
  const forDuration = `for ${Math.round(durationMs)} ms`;
  const runLater = (action: () => void): void => world.later(durationMs, action);
  if (node === undefined) return undefined;
  if (isCoordinatorFault(kind)) {
    const { group, nodes } = world;
    if (group === undefined) return undefined;
    const later = (delayMs: number, action: () => void): void => world.later(delayMs, action);
    return injectCoordinatorFault({ group, nodes, later }, kind, random);
  }
  switch (kind) {
    case 'killCoordinator':
      if (!world.killCoordinator(durationMs)) return undefined;
      return `the coordinator is killed, a new one starts after ${Math.round(durationMs)} ms`;
    case 'crashCoordinator':
      return scheduleCrash(world.coordinatorProcess, 'the coordinator', random);
    case 'pauseCoordinator': {
      const process = world.coordinatorProcess;
      if (process?.isRunning !== true) return undefined;
      process.pause();
      runLater(() => process.resume());
      return `the coordinator is paused ${forDuration}`;
    }
    case 'killAgent':
      if (node.agentProcess === undefined) return undefined;
      node.killAgent();
      return `the agent of ${node.id} is killed`;
    case 'leaveAgent': {
      // Most agents return within the grace, some only after it.
      const absenceMs = random.chance(0.2) ? random.between(9_000, 12_000) : durationMs;
      if (!node.leaveAgent(absenceMs)) return undefined;
      return `the agent of ${node.id} leaves in good order for ${Math.round(absenceMs)} ms`;
    }
    case 'crashAgent':
      return scheduleCrash(node.agentProcess, `the agent of ${node.id}`, random);
    case 'pauseAgent':
      if (node.agentProcess?.isRunning !== true) return undefined;
      node.pauseAgent();
      runLater(() => node.resumeAgent());
      return `the agent of ${node.id} is paused ${forDuration}`;
    case 'rebootMachine':
      node.reboot();
      return `${node.id} is restarted`;
    case 'machineVanishes':
      if (
        world.nodes.filter(({ isDestroyed }) => isDestroyed).length + 1 >
        world.nodes.length * MAX_DESTROYED_SHARE
      )
        return undefined;
      node.destroy();
      return `${node.id} is destroyed`;
    case 'nodeJoins':
      return `${world.addNode().id} joins`;
    default:
      return injectNetworkOrDiskFault(world, kind, node, random, durationMs);
  }
}

type NetworkOrDiskFault = Exclude<
  SingleFaultKind,
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
>;

/** Injects faults of networks, disks and containers. */
function injectNetworkOrDiskFault(
  world: SimCluster,
  kind: NetworkOrDiskFault,
  node: SimNode,
  random: SimRandom,
  durationMs: number,
): string | undefined {
  const { link } = node;
  const forDuration = `for ${Math.round(durationMs)} ms`;
  const runLater = (action: () => void): void => world.later(durationMs, action);
  switch (kind) {
    case 'stall':
      link.stall(durationMs);
      return `no traffic to and from ${node.id} ${forDuration}`;
    case 'oneWay': {
      const direction = random.pick(['up', 'down'] as const);
      link.stall(durationMs, direction);
      return `no traffic ${direction === 'up' ? 'from' : 'to'} ${node.id} ${forDuration}`;
    }
    case 'cut':
      link.cut(durationMs);
      return `${node.id} is cut off ${forDuration}`;
    case 'reset':
      link.reset();
      return `the connections of ${node.id} break`;
    case 'cutAll':
      for (const other of world.nodes) if (!other.isDestroyed) other.link.cut(durationMs);
      return `all nodes are cut off ${forDuration}`;
    case 'lossyMessages':
      Object.assign(link.faults, { orderLoss: 0.3, orderDouble: 0.3, reportDouble: 0.3 });
      runLater(() => Object.assign(link.faults, { orderLoss: 0, orderDouble: 0, reportDouble: 0 }));
      return `orders for ${node.id} are lost or sent twice, its reports are sent twice ${forDuration}`;
    case 'lossyCalls': {
      const lossy = random.pick([link, ...world.userLinks]);
      Object.assign(lossy.faults, { requestLoss: 0.3, replyLoss: 0.3 });
      runLater(() => Object.assign(lossy.faults, { requestLoss: 0, replyLoss: 0 }));
      return `calls of ${lossy.name} and their responses are lost ${forDuration}`;
    }
    case 'slowDisk':
      world.disk.delayMs = random.chance(0.7) ? [0, 25] : [50, 600];
      runLater(() => (world.disk.delayMs = [0, 0]));
      return `the coordinator's disk takes ${world.disk.delayMs.join(' to ')} ms ${forDuration}`;
    case 'fullDisk':
      world.disk.full = true;
      runLater(() => world.freeDiskSpace());
      return `the coordinator's disk is full ${forDuration}`;
    case 'slowAgentDisk':
      node.storeMs = random.chance(0.7) ? [1, 30] : [50, 900];
      runLater(() => (node.storeMs = [0, 2]));
      return `the disk of ${node.id} takes ${node.storeMs.join(' to ')} ms ${forDuration}`;
    case 'fullAgentDisk':
      node.storeIsFull = true;
      runLater(() => (node.storeIsFull = false));
      return `the disk of ${node.id} is full ${forDuration}`;
    case 'slowView':
      world.viewDelayMs = [5, random.pick([40, 300])];
      runLater(() => (world.viewDelayMs = [0, 0]));
      return `the coordinator's view lags ${forDuration}`;
    case 'containerCrashes':
      return world.replicas.endOne(random, /* exitCode */ 1);
    case 'containerExits':
      return world.replicas.endOne(random, /* exitCode */ 0);
    case 'containersFlap':
      world.replicas.flapShare = 0.6;
      runLater(() => (world.replicas.flapShare = 0));
      return `new containers end soon ${forDuration}`;
    case 'neverReady':
      world.replicas.neverReadyShare = 0.6;
      runLater(() => (world.replicas.neverReadyShare = 0));
      return `new containers accept no connection ${forDuration}`;
  }
}

/**
 * Makes the process crash at one of its next 12 calls to a port.
 * @returns A description, or undefined when no process runs.
 */
function scheduleCrash(
  process:
    | { readonly isDead: boolean; crashAt(calls: number, when: 'before' | 'after'): void }
    | undefined,
  processName: string,
  random: SimRandom,
): string | undefined {
  if (process === undefined || process.isDead) return undefined;
  const calls = random.wholeNumber(1, 12);
  const when = random.pick(['before', 'after'] as const);
  process.crashAt(calls, when);
  return `${processName} will die ${when} its port call ${calls}`;
}

function isCoordinatorFault(kind: FaultKind): kind is CoordinatorFaultKind {
  return kind in COORDINATOR_WEIGHTS;
}

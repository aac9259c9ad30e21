import { setTimeout as pause } from 'node:timers/promises';
import { ONLY, readReplicas } from '../load/workloads.js';
import type { AgentMachine } from '../world/agent-machine.js';
import type { World } from '../world/world.js';
import { chooseMs, chooseOne, type Fault, type FaultContext, type FaultResult } from './fault.js';

/** Longer than the lease of a node, milliseconds. */
const LONGER_THAN_LEASE_MS = [6_000, 9_000] as const;
/** Longer than an exclusive replica needs to end, and its replacement to start, milliseconds. */
const LONGER_THAN_EXCLUSIVE_MS = [33_000, 35_000] as const;
/** Time limit of a read of the replicas, milliseconds. */
const READ_MS = 10_000;

/** Kills an agent, and starts it again: it adopts its replicas. */
async function killAgent({ world, random }: FaultContext): Promise<FaultResult> {
  const agent = chooseOne(random, world.agents);
  await agent.kill('SIGKILL');
  await pause(chooseMs(random, 200, 1_000));
  agent.start();
  return { target: agent.name };
}

/** Stops the process of an agent for longer than the lease of its node. */
async function pauseAgent({ world, random }: FaultContext): Promise<FaultResult> {
  const agent = chooseOne(random, world.agents);
  await agent.kill('SIGSTOP');
  await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
  await agent.kill('SIGCONT');
  return allowReplacement(agent);
}

/** Cuts an agent off from all coordinators for longer than the lease of its node. */
async function cutAgent({ world, random }: FaultContext): Promise<FaultResult> {
  const agent = chooseOne(random, world.agents);
  isolateFromCoordinators(world, agent);
  await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
  world.machines.healCuts();
  return allowReplacement(agent);
}

/**
 * Cuts the agent of the exclusive replica off from all coordinators, for so long that the replica
 * ends and its replacement runs elsewhere.
 */
async function cutExclusive({ world, random }: FaultContext): Promise<FaultResult> {
  const [replica] = (await readReplicas(world, READ_MS)).get(ONLY) ?? [];
  const agent = world.requireAgent(replica?.nodeId ?? '');
  isolateFromCoordinators(world, agent);
  await pause(chooseMs(random, ...LONGER_THAN_EXCLUSIVE_MS));
  const [now] = (await readReplicas(world, READ_MS)).get(ONLY) ?? [];
  world.machines.healCuts();
  const problems =
    now?.id === replica?.id ? [`the exclusive replica ${replica?.id} was not replaced`] : [];
  return { ...allowReplacement(agent), problems };
}

function isolateFromCoordinators(world: World, agent: AgentMachine): void {
  world.isolate(
    agent.machine,
    world.coordinators.map(({ machine }) => machine),
  );
}

const allowReplacement = ({ name }: AgentMachine): FaultResult => ({
  target: name,
  mayBeReplaced: ({ nodeId }) => nodeId === name,
});

export const AGENT_FAULTS = {
  'kill-agent': { summary: 'SIGKILL of an agent', inject: killAgent },
  'pause-agent': { summary: 'SIGSTOP of an agent for longer than its lease', inject: pauseAgent },
  'cut-agent': {
    summary: 'no packet between an agent and the coordinators, for longer than its lease',
    inject: cutAgent,
  },
  'cut-exclusive': {
    summary: 'the same for the agent of the exclusive replica, until that was replaced',
    inject: cutExclusive,
  },
} as const satisfies Readonly<Record<string, Fault>>;

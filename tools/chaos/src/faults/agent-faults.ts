import { setTimeout as pause } from 'node:timers/promises';
import type { AgentMachine } from '../world/agent-machine.js';
import { chooseMs, chooseOne, type Fault, type FaultContext, type FaultResult } from './fault.js';

/** Longer than the lease of a node, milliseconds. */
const LONGER_THAN_LEASE_MS = [6_000, 9_000] as const;

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
  world.isolate(agent.machine, world.coordinatorMachines);
  await pause(chooseMs(random, ...LONGER_THAN_LEASE_MS));
  world.machines.healCuts();
  return allowReplacement(agent);
}

/** Allows that the replicas of a machine are replaced. */
export const allowReplacement = ({ name }: AgentMachine): FaultResult => ({
  target: name,
  mayBeReplaced: ({ nodeId }) => nodeId === name,
});

/** Faults that hit an agent. */
export const AGENT_FAULTS = {
  'kill-agent': { summary: 'SIGKILL of an agent', inject: killAgent },
  'pause-agent': { summary: 'SIGSTOP of an agent for longer than its lease', inject: pauseAgent },
  'cut-agent': {
    summary: 'no packet between an agent and the coordinators, for longer than its lease',
    inject: cutAgent,
  },
} as const satisfies Readonly<Record<string, Fault>>;

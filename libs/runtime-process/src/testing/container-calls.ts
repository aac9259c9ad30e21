import { createSeededRandom, randomHex, toContainerId, type ContainerId } from '@cloudless/base';
import type { ContainerRequest, ContainerRuntime, ContainerStatus } from '@cloudless/runtime';
import { readStartToken } from '@cloudless/app-kit/background';
import { waitUntil, type RealMachine } from './real-machine.js';

const random = createSeededRandom(4711);

/** Creates a complete request for a shell script. Override the fields that the test is about. */
export function aScript(
  script: string,
  overrides: Partial<ContainerRequest> = {},
): ContainerRequest {
  return {
    containerId: toContainerId(randomHex(random, 32)),
    labels: {},
    command: ['/bin/sh', '-c', script],
    args: [],
    env: {},
    ports: [],
    limits: {},
    ...overrides,
  };
}

/**
 * Waits until a container has ended and returns its status, even if the supervisor is replaced
 * meanwhile.
 */
export async function waitForExit(
  runtime: ContainerRuntime,
  id: ContainerId,
): Promise<ContainerStatus> {
  for (;;) {
    try {
      const events = runtime.events(new AbortController().signal);
      const listed = (await runtime.list()).find(({ containerId }) => containerId === id);
      if (listed?.phase === 'exited') return listed;
      for await (const { kind, status } of events)
        if (kind === 'exited' && status.containerId === id) return status;
    } catch (reason) {
      if ((reason as { kind?: string }).kind !== 'unavailable') throw reason;
    }
  }
}

/**
 * Kills the supervisor and waits until the open runtime has noticed. The runtime then starts
 * another supervisor at once.
 */
export async function killSupervisor(machine: RealMachine): Promise<void> {
  const pid = await machine.runtime.supervisorPid();
  const lost = machine.runtime.events(new AbortController().signal)[Symbol.asyncIterator]().next();
  process.kill(pid, 'SIGKILL');
  await lost.catch(() => undefined);
  await waitUntil(() => readStartToken(pid) === undefined);
}

/** Closes the only client, then kills the supervisor, so that no other supervisor is started. */
export async function closeAndKillSupervisor(machine: RealMachine): Promise<void> {
  const pid = await machine.runtime.supervisorPid();
  await machine.runtime.close();
  process.kill(pid, 'SIGKILL');
  await waitUntil(() => readStartToken(pid) === undefined);
}

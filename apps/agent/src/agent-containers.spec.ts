import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Condition_Type } from '@cloudless/api';
import {
  getContainerRecordPath,
  removeContainerRecord,
  saveContainerRecord,
  readContainerRecord,
} from './runtimes/container-record.js';
import { AgentProcess } from './testing/agent-process.js';
import { FakeCoordinatorServer } from './testing/fake-coordinator-server.js';

jest.setTimeout(60_000);

/** This spec needs no container runtime: no process listens at the socket. */
describe('cloudless-agent while no container runtime answers at its socket', () => {
  const coordinator = new FakeCoordinatorServer();
  let directory: string;
  let dataDir: string;
  let socketPath: string;
  let agents: AgentProcess[];

  const start = (...flags: readonly string[]): AgentProcess => {
    const agent = new AgentProcess(
      'run',
      '--name',
      'agent-1',
      '--coordinator',
      coordinator.url,
      '--data-dir',
      dataDir,
      ...flags,
    );
    agents.push(agent);
    return agent;
  };
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'agent-'));
    dataDir = join(directory, 'agent');
    socketPath = join(directory, 'no.sock');
    agents = [];
    await coordinator.listen();
  });
  afterEach(async () => {
    for (const agent of agents) await agent.end('SIGTERM');
    await coordinator.close();
    await rm(directory, { recursive: true, force: true });
  });

  it('exits with code 1 and names the remedies when --runtime cri is given', async () => {
    const agent = start('--runtime', 'cri', '--cri-socket', socketPath);
    expect(await agent.waitForExit()).toBe(1);
    const stderr = agent.stderr.join('\n');
    expect(stderr).toMatch(
      /--runtime cri: (no container runtime answers at|the agent must run as root to use the container runtime at) .*no\.sock/,
    );
    expect(stderr).toContain(
      'name its socket with --cri-socket, or run without containers with --runtime process',
    );
  });

  it('runs processes and logs why there are no containers when --runtime is auto', async () => {
    const agent = start('--cri-socket', socketPath);
    const ready = await agent.waitForLog('agent started, connecting to coordinators');
    expect(ready).toMatchObject({
      runtimes: ['process'],
      containers: expect.stringContaining(socketPath),
    });
    expect(ready['containerRuntime']).toBeUndefined();
  });

  it('exits with code 2 when --cri-socket is given with --runtime process', async () => {
    const agent = start('--runtime', 'process', '--cri-socket', socketPath);
    expect(await agent.waitForExit()).toBe(2);
    expect(agent.stderr).toEqual([
      'cloudless-agent: criSocket: applies to containers only, and runtime is process: remove it or choose another runtime',
    ]);
  });

  it.each(['auto', 'cri'])(
    'runs processes with --runtime %s when the recorded runtime, which may have its containers, does not answer',
    async (runtime) => {
      const before = start('--runtime', 'process');
      await before.waitForLog('session established');
      expect(await before.end('SIGTERM')).toBe(0);
      expect(coordinator.capabilities).not.toContain('runtime.cri');
      const record = {
        socketPath,
        owner: { cluster: coordinator.clusterId, node: 'agent-1' },
        capabilities: ['runtime.cri', 'volumes.named'],
      };
      saveContainerRecord(dataDir, record);
      const agent = start('--runtime', runtime);
      expect(
        await agent.waitForLog(
          'container runtime does not answer: containers of this node are managed once it does',
        ),
      ).toMatchObject({ socketPath });
      expect(await agent.waitForLog('agent started, connecting to coordinators')).toMatchObject({
        runtimes: ['process', 'cri'],
        containerRuntime: `a container runtime at ${socketPath}`,
      });
      await agent.waitForLog('session established');
      // Its containers stay, and the node gets no new ones.
      expect(coordinator.capabilities).toEqual(expect.arrayContaining(record.capabilities));
      expect(coordinator.helloConditions).toContainEqual(
        expect.objectContaining({
          type: Condition_Type.CONTAINER_RUNTIME_UNAVAILABLE,
          status: true,
        }),
      );
      expect(await agent.end('SIGTERM')).toBe(0);
      expect(readContainerRecord(dataDir)).toEqual(record);
      const { capabilities: _, ...withoutCapabilities } = record;
      const after = start('--runtime', 'process');
      await after.waitForLog('session established');
      expect(coordinator.capabilities).not.toContain('runtime.cri');
      expect(readContainerRecord(dataDir)).toEqual(withoutCapabilities);
    },
  );

  it('keeps the record of its container runtime when its start fails before the cluster is known', async () => {
    const record = {
      socketPath,
      owner: { cluster: coordinator.clusterId, node: 'agent-1' },
      capabilities: ['runtime.cri'],
    };
    saveContainerRecord(dataDir, record);
    const usedAddress = new URL(coordinator.url).host;
    const agent = start('--listen', usedAddress, '--stop-workloads-on-exit');
    expect(await agent.waitForExit()).toBe(1);
    expect(agent.stderr.join('\n')).toContain(usedAddress);
    expect(readContainerRecord(dataDir)).toEqual(record);
  });

  it('refuses a reset when its containers cannot be removed, and resets after their record is removed', async () => {
    const agent = start('--runtime', 'process');
    await agent.waitForLog('agent started, connecting to coordinators');
    expect(await agent.end('SIGTERM')).toBe(0);
    saveContainerRecord(dataDir, { socketPath, owner: { cluster: 'c', node: 'agent-1' } });
    const refused = new AgentProcess('reset', '--data-dir', dataDir);
    expect(await refused.waitForExit()).toBe(1);
    expect(refused.stderr.join('\n')).toBe(
      `cloudless-agent: containers of this agent may be running in the container runtime at ${socketPath} and cannot be removed; start the runtime ` +
        `and reset again, or leave the containers there and remove ${getContainerRecordPath(dataDir)}\n` +
        `  cause: connect ENOENT ${socketPath}`,
    );
    expect(existsSync(join(dataDir, 'identity.json'))).toBe(true);
    removeContainerRecord(dataDir);
    expect(await new AgentProcess('reset', '--data-dir', dataDir).waitForExit()).toBe(0);
    expect(existsSync(join(dataDir, 'identity.json'))).toBe(false);
  });
});

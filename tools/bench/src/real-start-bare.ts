import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { randomHex, sleep } from '@cloudless/base';
import {
  ContainerState,
  CriClient,
  NamespaceMode,
  SecurityProfile_ProfileType,
} from '@cloudless/runtime-cri/client';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import {
  COMMAND,
  CONCURRENCY,
  runForEach,
  GRACE_MS,
  IMAGES,
  KILLS,
  type Figures,
  type NetworkKind,
  type Side,
} from './real-start-terms.js';

const LABEL = 'io.cloudless.bench';
/**
 * Interval of the checks whether a killed container has ended, milliseconds. Short compared with a
 * start, long compared with a call.
 */
const DEATH_POLL_MS = 10;
const SECCOMP = { profileType: SecurityProfile_ProfileType.RuntimeDefault };

interface Container {
  readonly podSandboxId: string;
  readonly containerId: string;
}

/**
 * The minimum of CRI calls for a container: RunPodSandbox, CreateContainer, StartContainer;
 * StopContainer, StopPodSandbox, RemovePodSandbox. Their durations are the lower bound for every
 * orchestrator on this machine.
 */
export class BareCalls implements Side {
  readonly name = 'bare';
  /** Label value of the sandboxes of this run. */
  private readonly mark = randomHex(systemRandom, 6);
  private readonly logs = mkdtempSync(join(tmpdir(), 'cloudless-bench-'));
  private readonly client: CriClient;
  private createdCount = 0;

  constructor(socketPath: string) {
    this.client = new CriClient({ socketPath, clock: systemClock });
  }

  async measure(count: number, network: NetworkKind): Promise<Figures> {
    try {
      for (const image of IMAGES) await this.pullImage(image);
      let containers: Container[] = [];
      const createMs = await measureDuration(() =>
        runForEach(Array.from({ length: count }), CONCURRENCY, async () => {
          containers.push(await this.create(IMAGES[0], network));
        }),
      );
      const updated: Container[] = [];
      const updateMs = await measureDuration(() =>
        runForEach(containers, CONCURRENCY, async (container) => {
          await this.remove(container);
          updated.push(await this.create(IMAGES[1], network));
        }),
      );
      containers = updated;
      const recoverMs: number[] = [];
      for (const container of containers.slice(0, KILLS))
        recoverMs.push(await this.measureRecovery(container, network, containers));
      const removeMs = await measureDuration(() =>
        runForEach(containers, CONCURRENCY, (container) => this.remove(container)),
      );
      return { createMs, updateMs, recoverMs, removeMs };
    } finally {
      await this.removeAll();
    }
  }

  async close(): Promise<void> {
    await this.removeAll();
    this.client.close();
    rmSync(this.logs, { recursive: true, force: true });
  }

  private async pullImage(image: string): Promise<void> {
    const { image: existing } = await this.client.callImage('ImageStatus', (calls) =>
      calls.imageStatus({ image: { image } }),
    );
    if (existing === undefined)
      await this.client.callImage('PullImage', (calls) => calls.pullImage({ image: { image } }));
  }

  private async create(image: string, network: NetworkKind): Promise<Container> {
    const { client } = this;
    const name = `${this.mark}-${++this.createdCount}`;
    const namespaceOptions = {
      network: network === 'host' ? NamespaceMode.NODE : NamespaceMode.POD,
      pid: NamespaceMode.CONTAINER,
      ipc: NamespaceMode.POD,
    };
    const sandboxConfig = {
      metadata: { name, uid: name, namespace: 'cloudless-bench' },
      logDirectory: join(this.logs, name),
      labels: { [LABEL]: this.mark },
      linux: { securityContext: { namespaceOptions, seccomp: SECCOMP } },
    };
    const config = {
      metadata: { name: 'main' },
      image: { image },
      command: COMMAND,
      labels: { [LABEL]: this.mark },
      logPath: '0.log',
      linux: { securityContext: { namespaceOptions, seccomp: SECCOMP } },
    };
    const { podSandboxId } = await client.callSlow('RunPodSandbox', (calls) =>
      calls.runPodSandbox({ config: sandboxConfig }),
    );
    const { containerId } = await client.callSlow('CreateContainer', (calls) =>
      calls.createContainer({ podSandboxId, config, sandboxConfig }),
    );
    await client.callSlow('StartContainer', (calls) => calls.startContainer({ containerId }));
    return { podSandboxId, containerId };
  }

  private async remove({ podSandboxId, containerId }: Container): Promise<void> {
    const { client } = this;
    const timeout = BigInt(GRACE_MS / 1_000);
    await client.callSlow('StopContainer', (calls) =>
      calls.stopContainer({ containerId, timeout }),
    );
    await this.removeSandbox(podSandboxId);
  }

  private async removeSandbox(podSandboxId: string): Promise<void> {
    const { client } = this;
    await client.callSlow('StopPodSandbox', (calls) => calls.stopPodSandbox({ podSandboxId }));
    await client.callSlow('RemovePodSandbox', (calls) => calls.removePodSandbox({ podSandboxId }));
  }

  /**
   * Kills a container and creates another one as soon as the runtime reports the end, the earliest
   * time at which an orchestrator can detect the end and the exit code.
   * @returns Milliseconds from the kill until the new container runs.
   */
  private async measureRecovery(
    { containerId }: Container,
    network: NetworkKind,
    containers: Container[],
  ): Promise<number> {
    const { info } = await this.client.callQuick('ContainerStatus', (calls) =>
      calls.containerStatus({ containerId, verbose: true }),
    );
    const { pid = 0 } = JSON.parse(info['info'] ?? '{}') as { readonly pid?: number };
    if (pid <= 0)
      throw new Error(
        `container ${containerId} is not running, or the runtime does not report its process id`,
      );
    return measureDuration(async () => {
      process.kill(pid, 'SIGKILL');
      while (await this.isRunning(containerId)) await sleep(systemClock, DEATH_POLL_MS);
      containers.push(await this.create(IMAGES[1], network));
    });
  }

  private async isRunning(containerId: string): Promise<boolean> {
    const { status } = await this.client.callQuick('ContainerStatus', (calls) =>
      calls.containerStatus({ containerId }),
    );
    return status?.state === ContainerState.CONTAINER_RUNNING;
  }

  private async removeAll(): Promise<void> {
    const { items } = await this.client.callQuick('ListPodSandbox', (calls) =>
      calls.listPodSandbox({ filter: { labelSelector: { [LABEL]: this.mark } } }),
    );
    const ownSandboxes = items.filter(({ labels }) => labels[LABEL] === this.mark);
    await runForEach(ownSandboxes, CONCURRENCY, ({ id }) => this.removeSandbox(id));
  }
}

async function measureDuration(action: () => Promise<void>): Promise<number> {
  const startedAt = systemClock.now();
  await action();
  return systemClock.now() - startedAt;
}

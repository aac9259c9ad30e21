import { readdirSync, readFileSync } from 'node:fs';
import { get } from 'node:http';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { create } from '@bufbuild/protobuf';
import { createSeededRandom, randomHex, type ContainerId } from '@cloudless/base';
import type { ContainerRequest, ContainerStatus, LogLine } from '@cloudless/runtime';
import { systemClock, systemRandom } from '@cloudless/app-kit';
import { CriClient } from '../client/cri-client.js';
import { ContainerConfigSchema, PodSandboxConfigSchema } from '../gen/runtime/v1/api_pb.js';
import { openCriRuntime } from '../index.js';
import { canLimitSwap } from '../system/swap-limits.js';
import { CutOffProxy } from '../testing/cut-off-proxy.js';
import { aScriptRequest } from '../testing/real-commands.js';
import {
  openRealCriMachine,
  SOCKET,
  TEST_IMAGE,
  SKIP_REASON,
  type RealCriMachine,
} from '../testing/real-cri-machine.js';

const WEB_IMAGE = process.env['CLOUDLESS_CRI_WEB_IMAGE'] ?? 'nginx:alpine';
const never = new AbortController().signal;
const random = createSeededRandom(Number(systemRandom.next() * 2 ** 31));
const decodeText = ({ text: bytes }: LogLine): string => new TextDecoder().decode(bytes);

let machine: RealCriMachine;

/** Runs a script in a container of its own and waits for the exit of the container. */
async function runToExit(
  script: string,
  overrides: Partial<ContainerRequest> = {},
): Promise<ContainerStatus> {
  const events = machine.runtime.events(never)[Symbol.asyncIterator]();
  const { containerId } = await machine.runtime.start(aScriptRequest(script, overrides));
  for (;;) {
    const { value } = (await events.next()) as {
      readonly value: { readonly kind: string; readonly status: ContainerStatus };
    };
    if (value.kind === 'exited' && value.status.containerId === containerId) return value.status;
  }
}

async function readLines(containerId: ContainerId, follow = false): Promise<readonly string[]> {
  const lines: string[] = [];
  for await (const line of machine.runtime.logs(containerId, { follow }, never))
    lines.push(decodeText(line));
  return lines;
}

/** Makes a GET request and returns status code and body. */
function getBody(url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get(url, (response) => {
      let received = '';
      response
        .on('data', (part: Buffer) => (received += part.toString()))
        .once('end', () => resolve(`${response.statusCode} ${received}`));
    }).once('error', reject);
  });
}

const describeReal = SKIP_REASON === undefined ? describe : describe.skip;

describeReal(
  `CriRuntime on a real container runtime${SKIP_REASON === undefined ? '' : ` (${SKIP_REASON})`}`,
  () => {
    beforeEach(async () => {
      machine = await openRealCriMachine();
    });
    afterEach(() => machine.dispose());

    it('returns its name and version', async () => {
      expect(await machine.runtime.version()).toMatch(/^\S+ v?\d+\.\d+/);
    });

    it('runs the entry point of the image, which is reachable at the endpoint', async () => {
      const request = aScriptRequest('', {
        image: WEB_IMAGE,
        command: [],
        ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
      });
      const { endpoints } = await machine.runtime.start(request);
      const [{ ip, port } = { ip: '', port: 0 }] = endpoints;
      let answer: string | undefined;
      while (answer === undefined)
        answer = await getBody(`http://${ip}:${port}/`).catch(() => undefined);
      expect(answer).toMatch(/^200 /);
    });

    it('kills a container that exceeds its memory limit with the reason "out of memory"', async () => {
      const status = await runToExit('exec tail -c 200000000 /dev/zero', {
        limits: { memoryBytes: 32 * 1024 * 1024 },
      });
      expect(status).toMatchObject({ exitCode: 137, reason: 'out of memory' });
    });

    it('applies the limits of CPU and memory in the kernel', async () => {
      const { pid } = await machine.runtime.start(
        aScriptRequest('sleep 1000', { limits: { cpuMillis: 200, memoryBytes: 64 * 1024 * 1024 } }),
      );
      expect(readLimits(pid ?? 0)).toEqual({
        cpu: 0.2,
        memoryBytes: 64 * 1024 * 1024,
        swap: canLimitSwap(),
      });
    });

    it('hides /proc/kcore, write-protects /proc/sys and filters system calls', async () => {
      const { containerId } = await runToExit(
        'cat /proc/kcore | wc -c; echo x > /proc/sys/kernel/hostname; grep Seccomp: /proc/self/status',
      );
      expect(await readLines(containerId)).toEqual(expect.arrayContaining(['0', 'Seccomp:\t2']));
      expect((await readLines(containerId)).join('\n')).toMatch(/Read-only file system/);
    });

    it('rejects with the error of the registry when the image does not exist', async () => {
      await expect(
        machine.runtime.start(aScriptRequest('', { image: 'cloudless/no-such-image:1' })),
      ).rejects.toMatchObject({
        kind: 'precondition',
        message: expect.stringMatching(/cloudless\/no-such-image:1 cannot be pulled: .*not found/s),
      });
      expect(await machine.runtime.list()).toEqual([]);
    });

    it('yields each line of a followed log once across rotations', async () => {
      const script =
        'i=1; while [ $i -le 6000 ]; do echo "line $i"; i=$((i+1)); [ $((i % 500)) = 0 ] && sleep 0.1; done; echo end';
      const { containerId } = await machine.runtime.start(aScriptRequest(script));
      const lines: LogLine[] = [];
      for await (const line of machine.runtime.logs(containerId, { follow: true }, never))
        lines.push(line);
      expect(lines.map(decodeText)).toEqual([
        ...Array.from({ length: 6_000 }, (_, index) => `line ${index + 1}`),
        'end',
      ]);
      expect(lines.at(-1)?.sequence).toBe(6_001n);
      expect(
        readdirSync(path.join(machine.options.logDirectory, containerId)).length,
      ).toBeGreaterThan(1);
    }, 20_000);

    it('neither lists nor stops a container of another owner', async () => {
      const client = new CriClient({ socketPath: SOCKET ?? '', clock: systemClock });
      const name = `foreign-${randomHex(random, 4)}`;
      const sandboxConfig = create(PodSandboxConfigSchema, {
        metadata: { name, uid: name, namespace: 'foreign' },
        labels: { app: 'theirs' },
        linux: {},
      });
      const { podSandboxId } = await client.callSlow('RunPodSandbox', (calls) =>
        calls.runPodSandbox({ config: sandboxConfig }),
      );
      try {
        const config = create(ContainerConfigSchema, {
          metadata: { name },
          image: { image: TEST_IMAGE },
          command: ['sleep', '1000'],
          linux: {},
        });
        const { containerId } = await client.callSlow('CreateContainer', (calls) =>
          calls.createContainer({ podSandboxId, config, sandboxConfig }),
        );
        await client.callSlow('StartContainer', (calls) => calls.startContainer({ containerId }));
        const other = await openCriRuntime({ ...machine.options, orphanAgeMs: 0 });
        await other.start(aScriptRequest('sleep 1000'));
        expect(await other.list()).toHaveLength(1);
        await other.close();
        const { status } = await client.callQuick('ContainerStatus', (calls) =>
          calls.containerStatus({ containerId }),
        );
        expect(status?.exitCode).toBe(0);
        expect(status?.finishedAt).toBe(0n);
      } finally {
        await client.callSlow('StopPodSandbox', (calls) => calls.stopPodSandbox({ podSandboxId }));
        await client.callSlow('RemovePodSandbox', (calls) =>
          calls.removePodSandbox({ podSandboxId }),
        );
        client.close();
      }
    });

    it('removes a sandbox without a container when the next agent starts', async () => {
      const { containerId } = await machine.runtime.start(aScriptRequest('sleep 1000'));
      const client = new CriClient({ socketPath: SOCKET ?? '', clock: systemClock });
      const labelSelector = { 'io.cloudless.container-id': containerId };
      const sandboxes = async (): Promise<number> =>
        (
          await client.callQuick('ListPodSandbox', (calls) =>
            calls.listPodSandbox({ filter: { labelSelector } }),
          )
        ).items.length;
      const { containers } = await client.callQuick('ListContainers', (calls) =>
        calls.listContainers({ filter: { labelSelector } }),
      );
      await client.callSlow('RemoveContainer', (calls) =>
        calls.removeContainer({ containerId: containers[0]?.id ?? '' }),
      );
      expect([await machine.runtime.list(), await sandboxes()]).toEqual([[], 1]);
      const again = await openCriRuntime({ ...machine.options, orphanAgeMs: 0 });
      expect(await sandboxes()).toBe(0);
      await again.close();
      client.close();
    });
  },
);

describeReal('CriRuntime while a real container runtime is unreachable', () => {
  let proxy: CutOffProxy;
  let socketPath: string;
  beforeEach(async () => {
    socketPath = `/tmp/cloudless-cut-${randomHex(random, 4)}.sock`;
    proxy = new CutOffProxy(socketPath, SOCKET ?? '');
    await proxy.listen();
    machine = await openRealCriMachine({ socketPath });
  });
  afterEach(async () => {
    await machine.dispose();
    await proxy.cut();
  });

  it('fails calls, and afterwards lists the same containers and continues followed logs', async () => {
    const { runtime } = machine;
    const request = aScriptRequest('i=1; while :; do echo "line $i"; i=$((i+1)); sleep 0.05; done');
    const before = await runtime.start(request);
    const logs = runtime.logs(request.containerId, { follow: true }, never)[Symbol.asyncIterator]();
    const seen: string[] = [];
    const take = async (count: number): Promise<void> => {
      while (seen.length < count) seen.push(decodeText((await logs.next()).value as LogLine));
    };
    await take(3);
    const events = runtime.events(never)[Symbol.asyncIterator]().next();
    await proxy.cut();
    await expect(events).rejects.toMatchObject({ kind: 'unavailable' });
    await expect(runtime.list()).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringContaining(socketPath),
    });
    await take(8);
    await proxy.listen();
    expect(await runtime.list()).toEqual([before]);
    await take(12);
    expect(seen).toEqual(Array.from({ length: seen.length }, (_, index) => `line ${index + 1}`));
    await runtime.stop(request.containerId, 0);
    let next = await logs.next();
    while (next.done !== true) next = await logs.next();
  });
});

/** Reads the limits that the kernel enforces on a process, of either cgroup version. */
function readLimits(pid: number): {
  readonly cpu: number;
  readonly memoryBytes: number;
  readonly swap: boolean;
} {
  const read = (controller: string, v1: string, v2: string): string => {
    const line = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
      .split('\n')
      .find((each) => each.split(':')[1]?.split(',').includes(controller));
    if (line === undefined)
      return readFileSync(
        `/sys/fs/cgroup${readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('::')[1]}/${v2}`,
        'utf8',
      ).trim();
    return readFileSync(`/sys/fs/cgroup/${controller}${line.split(':')[2]}/${v1}`, 'utf8').trim();
  };
  const [quota, period = read('cpu', 'cpu.cfs_period_us', 'cpu.max')] = read(
    'cpu',
    'cpu.cfs_quota_us',
    'cpu.max',
  ).split(' ');
  const memoryBytes = Number(read('memory', 'memory.limit_in_bytes', 'memory.max'));
  const swap = canLimitSwap()
    ? read('memory', 'memory.memsw.limit_in_bytes', 'memory.swap.max')
    : 'max';
  return {
    cpu: Number(quota) / Number(period),
    memoryBytes,
    swap: swap === '0' || swap === String(memoryBytes),
  };
}

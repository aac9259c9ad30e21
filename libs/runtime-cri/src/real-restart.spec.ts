import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { randomHex, sleep, toContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { openRealCriMachine, TEST_IMAGE, WHY_NOT, type RealCriMachine } from './testing/real-cri-machine.js';
import { realClock, realRandom } from './testing/system.js';

/** A containerd that these tests may kill is their own: with this configuration, in folders of its own. */
const CONFIG = process.env['CLOUDLESS_CRI_CONTAINERD_CONFIG'];
const whyNot = WHY_NOT ?? (CONFIG === undefined ? 'CLOUDLESS_CRI_CONTAINERD_CONFIG is not set' : undefined);
const describeReal = whyNot === undefined ? describe : describe.skip;
const never = new AbortController().signal;
const START_MS = 30_000;

const requestOf = (script: string): ContainerRequest => ({
  ...{
    containerId: toContainerId(randomHex(realRandom, 32)),
    labels: { a: 'b' },
    image: TEST_IMAGE,
    args: [],
    env: {},
    limits: {},
  },
  ...{ command: ['/bin/sh', '-c', script], ports: [{ name: 'http', port: 80, protocol: 'tcp' }] },
});

describeReal(`a containerd that is killed and started again${whyNot === undefined ? '' : ` (${whyNot})`}`, () => {
  let home: string;
  let containerd: ChildProcess;
  let machine: RealCriMachine;

  const startContainerd = (): ChildProcess =>
    spawn('containerd', ['--config', path.join(home, 'containerd.toml')], { stdio: 'ignore' });

  async function answered<Result>(call: () => Promise<Result>): Promise<Result> {
    for (;;) {
      try {
        return await call();
      } catch (reason) {
        if ((reason as { kind?: string }).kind !== 'unavailable') throw reason;
        await sleep(realClock, 50);
      }
    }
  }

  beforeEach(async () => {
    home = mkdtempSync(path.join(tmpdir(), 'cloudless-containerd-'));
    const own = { root: path.join(home, 'root'), state: path.join(home, 'state'), address: path.join(home, 'cri.sock') };
    let config = readFileSync(CONFIG ?? '', 'utf8');
    for (const [key, value] of Object.entries(own))
      config = config.replace(new RegExp(`^(\\s*${key} = ).*$`, 'm'), `$1"${value}"`);
    writeFileSync(path.join(home, 'containerd.toml'), config);
    containerd = startContainerd();
    machine = await answered(() => openRealCriMachine({ socketPath: own.address }));
  }, START_MS);

  afterEach(async () => {
    await machine.dispose();
    const ended = new Promise((resolve) => containerd.once('exit', resolve));
    containerd.kill('SIGTERM');
    await ended;
    rmSync(home, { recursive: true, force: true });
  }, START_MS);

  it(
    'keeps what ran, the exit codes of its absence, and the logs',
    async () => {
      const { runtime } = machine;
      const counting = requestOf('i=1; while :; do echo "line $i"; i=$((i+1)); sleep 0.05; done');
      const ending = requestOf('until [ -e /tmp/go ]; do sleep 0.02; done; exit 42');
      const [kept, { pid }] = [await runtime.start(counting), await runtime.start(ending)];
      const logs = runtime.logs(counting.containerId, { follow: true }, never)[Symbol.asyncIterator]();
      const seen: string[] = [];
      const take = async (count: number): Promise<void> => {
        for (let line = 0; line < count; line += 1) {
          const { value } = (await logs.next()) as { readonly value: { readonly text: Uint8Array } };
          seen.push(new TextDecoder().decode(value.text));
        }
      };
      await take(3);
      const died = new Promise((resolve) => containerd.once('exit', resolve));
      containerd.kill('SIGKILL');
      await died;
      writeFileSync(`/proc/${pid}/root/tmp/go`, '');
      await expect(runtime.list()).rejects.toMatchObject({ kind: 'unavailable' });
      containerd = startContainerd();
      const listed = await answered(() => runtime.list());
      expect(listed).toContainEqual(kept);
      expect(listed).toHaveLength(2);
      expect(await answered(() => runtime.stop(ending.containerId, 10_000))).toMatchObject({ exitCode: 42 });
      await take(60);
      expect(seen).toEqual(seen.map((_, index) => `line ${index + 1}`));
    },
    START_MS,
  );
});

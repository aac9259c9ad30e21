import { readFile } from 'node:fs/promises';
import { expect, it } from '@jest/globals';
import { silentLog as log, toContainerId } from '@cloudless/base';
import type { ContainerRequest } from '@cloudless/runtime';
import { systemClock as clock } from '@cloudless/app-kit';
import { openCriRuntime } from './index.js';
import { FakeCriServer } from './testing/fake-cri-server.js';

it('openCriRuntime runs the example of README.md', async () => {
  const server = new FakeCriServer();
  await server.listen();
  const { socketPath, logDirectory, directory: imageDirectory } = server;
  const request: ContainerRequest = {
    containerId: toContainerId('1'.repeat(64)),
    labels: {},
    command: [],
    args: [],
    env: {},
    ports: [],
    limits: {},
  };
  // <example>
  const runtime = await openCriRuntime({
    socketPath,
    owner: { cluster: 'home', node: 'laptop' },
    logDirectory,
    imageDirectory,
    clock,
    log,
  });
  const { endpoints } = await runtime.start({
    ...request,
    image: 'nginx:alpine',
    ports: [{ name: 'http', port: 80, protocol: 'tcp' }],
  });
  // the address of the pod
  expect(endpoints).toEqual([{ portName: 'http', ip: '10.0.0.7', port: 80 }]);
  expect(await runtime.stop(request.containerId, 0)).toMatchObject({
    exitCode: 137,
    reason: 'killed by SIGKILL',
  });
  await runtime.remove(request.containerId); // and its sandbox, network and log
  await runtime.close(); // running containers continue
  // </example>
  expect(server.containers.size).toBe(0);
  await server.dispose();
});

it('README.md contains the example of this spec', async () => {
  const spec = await readFile(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const example =
    /\/\/ <example>\n([^]*?) *\/\/ <\/example>/u.exec(spec)?.[1]?.replaceAll(/^ {2}/gmu, '') ??
    'no example';
  expect(await readFile(new URL('../README.md', import.meta.url), 'utf8')).toContain(example);
});

import { describeRuntime } from './describe-runtime.js';

describe('describeRuntime', () => {
  it.each([
    {
      name: 'agents that have a container runtime',
      containers: { runtime: 'containerd 1.6.20 at /run/containerd/containerd.sock' },
      chosen: 'auto',
      text: 'processes, and containers by containerd 1.6.20 at /run/containerd/containerd.sock',
    },
    {
      name: 'agents that found no container runtime',
      containers: { reason: 'no container runtime was found at /run/crio/crio.sock' },
      chosen: 'auto',
      text:
        'processes; containers are not used: no container runtime was found at /run/crio/crio.sock; ' +
        '`sudo node tools/containers/setup.mjs install` installs one',
    },
    {
      name: '--runtime process',
      containers: { reason: 'runtime is process' },
      chosen: 'process',
      text: 'processes; containers are off because of --runtime process',
    },
  ])('describes $name', ({ containers, chosen, text }) => {
    expect(describeRuntime(containers, chosen)).toBe(text);
  });
});

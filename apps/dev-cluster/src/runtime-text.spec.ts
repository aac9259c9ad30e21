import { runtimeText } from './runtime-text.js';

describe('what the agents run workloads with', () => {
  it.each([
    {
      containers: { runtime: 'containerd 1.6.20 at /run/containerd/containerd.sock' },
      chosen: 'auto',
      text: 'processes, and containers by containerd 1.6.20 at /run/containerd/containerd.sock',
    },
    {
      containers: { why: 'no container runtime was found at /run/crio/crio.sock' },
      chosen: 'auto',
      text:
        'processes; containers are not used: no container runtime was found at /run/crio/crio.sock; ' +
        '`sudo node tools/containers/setup.mjs install` brings a container runtime',
    },
    {
      containers: { why: 'runtime is process' },
      chosen: 'process',
      text: 'processes; containers are not used, as --runtime process says',
    },
  ])('$text', ({ containers, chosen, text }) => {
    expect(runtimeText(containers, chosen)).toBe(text);
  });
});

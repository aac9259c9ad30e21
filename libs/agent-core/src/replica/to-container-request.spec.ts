import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { toContainerId } from '@cloudless/base';
import { Port_Protocol, WorkloadSpecSchema } from '@cloudless/api';
import { aStartOrder, aStopOrder } from '../testing/index.js';
import { fromContainerLabels } from './container-labels.js';
import { toContainerRequest } from './to-container-request.js';

const place = { clusterId: 'cluster-1', nodeId: 'node-1', containerId: toContainerId('a'.repeat(64)) };

describe('toContainerRequest', () => {
  it('carries everything of the spec that concerns a container', () => {
    const spec = create(WorkloadSpecSchema, {
      image: 'nginx:alpine',
      command: ['server', '-v'],
      args: ['--port', '80'],
      env: { A: '1' },
      workingDir: '/srv',
      ports: [
        { containerPort: 80, protocol: Port_Protocol.TCP },
        { name: 'dns', containerPort: 53, protocol: Port_Protocol.UDP },
      ],
      resources: { requests: { cpuMillis: 7 }, limits: { cpuMillis: 500, memoryBytes: 1_000n } },
      labels: { team: 'red' },
      annotations: { note: 'x y' },
    });
    const request = toContainerRequest(aStartOrder({ spec }), place);
    expect(request).toMatchObject({
      containerId: place.containerId,
      image: 'nginx:alpine',
      command: ['server', '-v'],
      args: ['--port', '80'],
      env: { A: '1' },
      workingDir: '/srv',
      ports: [
        { name: 'port-80', port: 80, protocol: 'tcp' },
        { name: 'dns', port: 53, protocol: 'udp' },
      ],
      limits: { cpuMillis: 500, memoryBytes: 1_000 },
    });
    expect(request.labels).toMatchObject({ 'cloudless.label/team': 'red', 'cloudless.annotation/note': 'x y' });
    expect(fromContainerLabels(request.labels)).toEqual({
      clusterId: 'cluster-1',
      nodeId: 'node-1',
      replicaId: 'web-1',
      workloadUid: 'web',
      namespace: 'default',
      workload: 'web',
      version: 1,
      slot: 0,
      orderRevision: 10n,
      restarts: 0,
    });
  });

  it.each<{ name: string; spec: MessageInitShape<typeof WorkloadSpecSchema> }>([
    { name: 'absent', spec: {} },
    { name: 'zero', spec: { resources: { limits: { cpuMillis: 0, memoryBytes: 0n } } } },
  ])('sets no limit when it is $name, no image and no directory when there is none', ({ spec }) => {
    const request = toContainerRequest(aStartOrder({ spec }), place);
    expect({ limits: request.limits, image: 'image' in request, workingDir: 'workingDir' in request }).toEqual({
      limits: {},
      image: false,
      workingDir: false,
    });
  });

  it('refuses an order that starts nothing', () => {
    expect(() => toContainerRequest(aStopOrder(), place)).toThrow('order 20 for web-1 starts nothing');
  });

  it.each([{}, { 'cloudless.cluster': 'c', 'cloudless.node': 'n', 'cloudless.replica': 'r', 'cloudless.order-revision': 'x' }])(
    'does not take %j for an owner',
    (labels) => {
      expect(fromContainerLabels(labels)).toBeUndefined();
    },
  );
});

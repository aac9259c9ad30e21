import { create } from '@bufbuild/protobuf';
import { SimulatedNodesSchema } from '@cloudless/api';
import { NodeRecordSchema } from '@cloudless/api/store';
import type { ClusterView } from '@cloudless/cluster-state';
import { createSimulatedNodes } from './simulated-nodes.js';

/** Returns the capabilities of a simulated node, beside nodes with these capabilities. */
function simulateBeside(...nodes: readonly (readonly string[])[]): readonly string[] | undefined {
  const records = nodes.map((capabilities, index) => ({
    value: create(NodeRecordSchema, {
      id: `node-${index}`,
      hello: { capabilities: [...capabilities] },
    }),
    revision: 1n,
  }));
  const view = { nodes: () => records, node: () => undefined } as Pick<
    ClusterView,
    'node' | 'nodes'
  >;
  const request = create(SimulatedNodesSchema, { capacity: { cpuMillis: 1, memoryBytes: 1n } });
  return createSimulatedNodes(view, request, new Set(), 0)[0]?.hello?.capabilities;
}

describe('createSimulatedNodes', () => {
  it.each([
    {
      name: 'the capabilities of all nodes',
      nodes: [
        ['a', 'b'],
        ['b', 'c'],
      ],
      expected: ['b'],
    },
    {
      name: 'a directory of host paths that the other node has within its own',
      nodes: [
        ['volumes.hostpath', 'host-path./srv'],
        ['volumes.hostpath', 'host-path./srv/data'],
      ],
      expected: ['host-path./srv/data', 'volumes.hostpath'],
    },
    {
      name: 'no host path when the nodes have no directory in common',
      nodes: [
        ['volumes.hostpath', 'host-path./srv'],
        ['volumes.hostpath', 'host-path./opt'],
      ],
      expected: [],
    },
    {
      name: 'no host path when a node allows none',
      nodes: [['volumes.hostpath', 'host-path./srv'], []],
      expected: [],
    },
    {
      name: 'the named directory beside an agent of an earlier version, which names none',
      nodes: [['volumes.hostpath', 'host-path./srv'], ['volumes.hostpath']],
      expected: ['host-path./srv', 'volumes.hostpath'],
    },
  ])('gives a node without a model $name', ({ nodes, expected }) => {
    expect(simulateBeside(...nodes)).toEqual(expected);
  });
});

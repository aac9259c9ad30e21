import { create } from '@bufbuild/protobuf';
import { Port_Protocol, PortSchema } from '@cloudless/api';
import { ManualClock } from '@cloudless/base/testing';
import { forwardPort } from './port-forward.js';

const tcp = create(PortSchema, { name: 'http', containerPort: 80, protocol: Port_Protocol.TCP });
const udp = create(PortSchema, { name: 'dns', containerPort: 53, protocol: Port_Protocol.UDP });

describe('forwardPort', () => {
  const forward = (port: string, declared = [udp, tcp]) =>
    forwardPort(
      port,
      {
        containerId: 'c1',
        replicaId: 'web-1',
        nodeId: 'node-1',
        endpoints: [
          { portName: 'http', ip: '127.0.0.1', port: 20_000 },
          { portName: 'dns', ip: '127.0.0.1', port: 20_001 },
        ],
        declared,
      },
      (async function* () {})(),
      {
        dial: async () => {
          throw new Error('dialled');
        },
        clock: new ManualClock(),
        keepAliveMs: 15_000,
      },
      new AbortController().signal,
    ).next();

  it.each(['dns', '53', 'other'])(
    'rejects port %s, which is no declared TCP port',
    async (port) => {
      await expect(forward(port)).rejects.toThrow('it has http (80)');
    },
  );

  it.each(['', 'http', '80'])('dials the TCP port that "%s" selects', async (port) => {
    await expect(forward(port)).rejects.toThrow('dialled');
  });

  it('rejects a replica without TCP ports', async () => {
    await expect(forward('', [udp])).rejects.toThrow('it has none');
  });
});

import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { aService, anEndpoint, TestCluster } from '../testing/test-cluster.js';

const VIP = '10.96.0.20';

let cluster: TestCluster;
const sockets: Socket[] = [];
beforeEach(async () => void (cluster = await TestCluster.create()));
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.close();
  await cluster.close();
});

async function bind(): Promise<Socket> {
  const socket = createSocket('udp4');
  sockets.push(socket);
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return socket;
}

describe('UDP sessions', () => {
  it('of clients that get answers survive a flood of datagrams without answers', async () => {
    const a = await cluster.addProxy('a', { limits: { maxUdpSessions: 3 } });
    const endpoint = await bind();
    let flooded = 0;
    const waiting: (() => void)[] = [];
    // Answers `hello` with the port at which the session arrives; each session has its own.
    endpoint.on('message', (message, remote: RemoteInfo) => {
      if (message.toString() === 'hello')
        return endpoint.send(`${remote.port}`, remote.port, remote.address);
      flooded += 1;
      waiting.shift()?.();
    });
    const { port: at } = endpoint.address();
    const ports = [{ name: 'udp', port: 53, protocol: 1 as const }];
    await cluster.update({
      services: [aService('dns', VIP, { ports })],
      endpoints: [
        anEndpoint('dns', 'r1', 'a', at, { ports: [{ name: 'udp', ip: '127.0.0.1', port: at }] }),
      ],
    });
    const port = await a.udpPort(VIP, 53);
    const client = await bind();
    const greet = async (): Promise<string> => {
      client.send('hello', port, '127.0.0.1');
      const [answer] = (await once(client, 'message')) as [Buffer];
      return answer.toString();
    };
    const session = await greet();
    for (let count = 0; count < 10; count += 1) {
      const arrived = new Promise<void>((resolve) => waiting.push(resolve));
      (await bind()).send('x', port, '127.0.0.1');
      await arrived;
    }
    expect([flooded, await greet()]).toEqual([10, session]);
    expect(a.proxy.status().openConnections).toBe(3);
  });
});

import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { createSeededRandom, silentLog } from '@cloudless/base';
import { ManualClock, RecordingMeter } from '@cloudless/base/testing';
import { createIngress, type IngressRoute } from './index.js';

it('the example of the README holds', async () => {
  const [clock, random, log] = [new ManualClock(), createSeededRandom(1), silentLog];
  const meter = new RecordingMeter();
  const endpoint = http.createServer((_req, res) => res.end('hello')).listen(0, '127.0.0.1');
  const server = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await Promise.all([once(endpoint, 'listening'), once(server, 'listening')]);
  const { port: endpointPort } = endpoint.address() as AddressInfo;
  const { port: ingressPort } = server.address() as AddressInfo;
  // README begin
  const route: IngressRoute = {
    ...{ namespace: 'shop', name: 'web', hosts: ['shop.example.com'] },
    rules: [
      {
        pathPrefix: '/',
        service: { namespace: 'shop', name: 'web' },
        ...{ port: 80, timeoutMs: 60_000, retries: 1 },
      },
    ],
    ...{ redirectToHttps: false, maxHeaderBytes: 16_384, maxBodyBytes: 0 },
  };
  const ingress = createIngress({
    ...{ clock, random, log, meter },
    backends: {
      choose: ({ service }) =>
        service.name === 'web'
          ? {
              ...{ kind: 'chosen', endpoint: 'web-0', isShareable: true },
              connect: () => Promise.resolve(net.connect(endpointPort, '127.0.0.1')),
              release: () => undefined, // the request no longer uses the endpoint
            }
          : { kind: 'refused', reason: 'has no ready endpoint' },
    },
  });
  await ingress.setRoutes([route]);
  ingress.serveHttp(server); // a listening net.Server with allowHalfOpen

  expect(await get('shop.example.com')).toEqual([200, 'hello']);
  expect(await get('blog.example.com')).toEqual([404, expect.stringContaining('no route')]);
  // README end
  ingress.close();
  endpoint.close();

  async function get(host: string): Promise<[number | undefined, string]> {
    const request = http.get({ host: '127.0.0.1', port: ingressPort, headers: { host } });
    const [response] = (await once(request, 'response')) as [http.IncomingMessage];
    let body = '';
    for await (const chunk of response.setEncoding('utf8')) body += chunk as string;
    return [response.statusCode, body];
  }
});

it('the README shows the example word for word', () => {
  const lines = (text: string) => text.split('\n').map((line) => line.trim());
  const source = readFileSync(new URL('readme.spec.ts', import.meta.url), 'utf8');
  const [, code = ''] = source.split('// README begin\n');
  const [example = ''] = code.split('  // README end');
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  expect(lines(readme).join('\n')).toContain(lines(example).join('\n').trim());
});

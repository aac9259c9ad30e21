import * as net from 'node:net';
import { once } from 'node:events';
import { serversOfTest } from '../testing/fixture.js';
import { http1, http2Request, JSON_TYPE } from '../testing/raw-http.js';

const open = serversOfTest(afterEach);

describe('checkRequestOrigin on a plaintext server', () => {
  it.each([
    {
      name: 'a Host that is not loopback',
      headers: { host: 'evil.example:8080' },
      says: 'host "evil.example:8080" is not this machine',
    },
    {
      name: 'an origin of another site',
      headers: { origin: 'http://evil.example' },
      says: 'origin "http://evil.example" may not call this server',
    },
    { name: 'the opaque origin null', headers: { origin: 'null' }, says: 'origin "null"' },
  ])('refuses $name with 403 and says why', async ({ headers, says }) => {
    const { url } = await open();
    const answer = await http1(url, { headers: { ...JSON_TYPE, ...headers }, body: '{}' });
    expect({ status: answer.status, error: JSON.parse(answer.body.toString()) }).toEqual({
      status: 403,
      error: { code: 'permission_denied', message: expect.stringContaining(says) },
    });
  });

  it.each([
    { name: ':authority', headers: { ':authority': 'evil.example' } },
    {
      name: 'host beside a good :authority',
      headers: { ':authority': 'localhost', host: 'evil.example' },
    },
    { name: 'origin', headers: { origin: 'https://evil.example' } },
  ])('checks $name in HTTP/2', async ({ headers }) => {
    const { url } = await open();
    expect(
      await http2Request(url, { headers: { ...JSON_TYPE, ...headers }, body: '{}' }),
    ).toMatchObject({ status: 403 });
  });

  it.each([
    { name: 'the same twice', hosts: ['localhost', 'localhost'] },
    { name: 'two names', hosts: ['localhost', 'evil.example'] },
    {
      name: 'the same in other letters',
      hosts: ['localhost', 'localhost'],
      fields: ['Host', 'hOST'],
    },
  ])(
    'answers 400 to two Host headers in HTTP/1.1: $name',
    async ({ hosts, fields = ['Host', 'Host'] }) => {
      const { address } = await open();
      const socket = net.connect(address.port, address.host);
      const head = hosts.map((host, index) => `${fields[index]}: ${host}\r\n`).join('');
      const path = '/cloudless.api.CoordinatorService/GetWorkload';
      socket.write(
        `POST ${path} HTTP/1.1\r\n${head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`,
      );
      const [answer] = (await once(socket, 'data')) as [Buffer];
      expect(answer.toString()).toMatch(/^HTTP\/1\.1 400 /);
      expect(answer.toString()).toContain('the request has 2 Host headers; send one');
      socket.destroy();
    },
  );

  it('refuses HTTP/1.0 without a host', async () => {
    const { address } = await open();
    const socket = net.connect(address.port, address.host);
    socket.write('POST /cloudless.api.CoordinatorService/GetWorkload HTTP/1.0\r\n\r\n');
    const [head] = (await once(socket, 'data')) as [Buffer];
    expect(head.toString()).toMatch(/^HTTP\/1\.1 403 /);
    socket.destroy();
  });

  it('answers the CORS preflight of a loopback page and exposes the headers of gRPC-Web', async () => {
    const { url } = await open();
    const origin = 'http://localhost:5173';
    const asks = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type,connect-protocol-version',
    };
    const preflight = await http1(url, { method: 'OPTIONS', headers: { origin, ...asks } });
    expect(preflight).toMatchObject({
      status: 204,
      headers: { 'access-control-allow-origin': origin, vary: 'Origin' },
    });
    expect(String(preflight.headers['access-control-allow-headers']).toLowerCase()).toContain(
      'connect-protocol-version',
    );
    for (const send of [http1, http2Request]) {
      const answer = await send(url, { headers: { ...JSON_TYPE, origin }, body: '{"name":"web"}' });
      expect(answer).toMatchObject({
        status: 200,
        headers: { 'access-control-allow-origin': origin },
      });
      expect(String(answer.headers['access-control-expose-headers']).toLowerCase()).toContain(
        'grpc-status',
      );
    }
  });

  it('allows an origin of allowedOrigins', async () => {
    const { url } = await open({ allowedOrigins: ['https://console.example'] });
    expect(
      await http1(url, {
        headers: { ...JSON_TYPE, origin: 'https://console.example' },
        body: '{}',
      }),
    ).toMatchObject({
      status: 200,
    });
  });
});

describe('createDispatch: requests that are no RPC', () => {
  it.each([
    {
      name: 'an unknown path',
      request: { path: '/nothing' },
      status: 404,
      says: 'no RPC at this path',
    },
    { name: 'GET', request: { method: 'GET' }, status: 405, says: 'POST' },
    {
      name: 'no content type',
      request: { headers: {}, body: '{}' },
      status: 415,
      says: 'application/json',
    },
    {
      name: 'a bidirectional stream over HTTP/1.1',
      request: { path: '/cloudless.api.CoordinatorService/Session' },
      status: 505,
      says: 'HTTP/2',
    },
  ])('answers $name with $status and an error text', async ({ request, status, says }) => {
    const { url } = await open();
    const answer = await http1(url, request);
    expect(answer.status).toBe(status);
    expect(JSON.parse(answer.body.toString())).toMatchObject({
      message: expect.stringContaining(says),
    });
  });
});

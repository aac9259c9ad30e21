import * as net from 'node:net';
import { once } from 'node:events';
import { serversOfTest } from '../testing/fixture.js';
import { http1, http2Request, JSON_TYPE } from '../testing/raw-http.js';

const open = serversOfTest(afterEach);

describe('startRpcServer', () => {
  it.each([
    {
      name: 'a Host that is not loopback',
      headers: { host: 'evil.example:8080' },
      message: 'host "evil.example:8080" is not this machine',
    },
    {
      name: 'an origin of another site',
      headers: { origin: 'http://evil.example' },
      message: 'origin "http://evil.example" may not call this server',
    },
    { name: 'the opaque origin null', headers: { origin: 'null' }, message: 'origin "null"' },
  ])('answers 403 with the reason to $name', async ({ headers, message }) => {
    const { url } = await open();
    const response = await http1(url, { headers: { ...JSON_TYPE, ...headers }, body: '{}' });
    expect({ status: response.status, error: JSON.parse(response.body.toString()) }).toEqual({
      status: 403,
      error: { code: 'permission_denied', message: expect.stringContaining(message) },
    });
  });

  it.each([
    { name: 'a foreign :authority', headers: { ':authority': 'evil.example' } },
    {
      name: 'a foreign Host beside a loopback :authority',
      headers: { ':authority': 'localhost', host: 'evil.example' },
    },
    { name: 'a foreign origin', headers: { origin: 'https://evil.example' } },
  ])('answers 403 to an HTTP/2 request with $name', async ({ headers }) => {
    const { url } = await open();
    expect(
      await http2Request(url, { headers: { ...JSON_TYPE, ...headers }, body: '{}' }),
    ).toMatchObject({ status: 403 });
  });

  it.each([
    { name: 'the same name twice', hosts: ['localhost', 'localhost'] },
    { name: 'two different names', hosts: ['localhost', 'evil.example'] },
    {
      name: 'the same name, header names in different letter case',
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
      const [response] = (await once(socket, 'data')) as [Buffer];
      expect(response.toString()).toMatch(/^HTTP\/1\.1 400 /);
      expect(response.toString()).toContain('the request has 2 Host headers; send one');
      socket.destroy();
    },
  );

  it('answers 403 to HTTP/1.0 without a Host', async () => {
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
    const preflightHeaders = {
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type,connect-protocol-version',
    };
    const preflight = await http1(url, {
      method: 'OPTIONS',
      headers: { origin, ...preflightHeaders },
    });
    expect(preflight).toMatchObject({
      status: 204,
      headers: { 'access-control-allow-origin': origin, vary: 'Origin' },
    });
    expect(String(preflight.headers['access-control-allow-headers']).toLowerCase()).toContain(
      'connect-protocol-version',
    );
    for (const send of [http1, http2Request]) {
      const response = await send(url, {
        headers: { ...JSON_TYPE, origin },
        body: '{"name":"web"}',
      });
      expect(response).toMatchObject({
        status: 200,
        headers: { 'access-control-allow-origin': origin },
      });
      expect(String(response.headers['access-control-expose-headers']).toLowerCase()).toContain(
        'grpc-status',
      );
    }
  });

  it('serves a request whose origin is in allowedOrigins', async () => {
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

describe('createDispatch', () => {
  it.each([
    {
      name: 'a request of an unknown path',
      request: { path: '/nothing' },
      status: 404,
      message: 'no RPC at this path',
    },
    { name: 'a GET of an RPC', request: { method: 'GET' }, status: 405, message: 'POST' },
    {
      name: 'a request without a content type',
      request: { headers: {}, body: '{}' },
      status: 415,
      message: 'application/json',
    },
    {
      name: 'a bidirectional stream over HTTP/1.1',
      request: { path: '/cloudless.api.CoordinatorService/Session' },
      status: 505,
      message: 'HTTP/2',
    },
  ])('answers $status with an error text to $name', async ({ request, status, message }) => {
    const { url } = await open();
    const response = await http1(url, request);
    expect(response.status).toBe(status);
    expect(JSON.parse(response.body.toString())).toMatchObject({
      message: expect.stringContaining(message),
    });
  });
});

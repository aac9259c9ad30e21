import { isGrpc, toBackendHeaders, toClientHeaders, type ForwardedFacts } from './headers.js';
import { parseRequest, type RawRequest } from './parse-request.js';

const request = (rawHeaders: string[], change: Partial<RawRequest> = {}): RawRequest => ({
  ...{ httpVersionMajor: 1, method: 'GET', url: '/', rawHeaders },
  ...change,
});

describe('parseRequest', () => {
  it.each([
    { url: '/a?b', host: 'a.b', path: '/a', target: '/a?b' },
    { url: 'http://A.b:80/x', host: 'a.b', path: '/x', target: '/x' },
    { url: 'https://a.b?x', host: 'a.b', path: '/', target: '/?x' },
  ])('finds host and path of $url', ({ url, ...expected }) => {
    expect(parseRequest(request(['Host', 'a.b'], { url }))).toMatchObject({
      ...expected,
      hasBody: false,
      contentLength: 0,
    });
  });

  it.each([
    { length: '5', coding: undefined, contentLength: 5 },
    { length: undefined, coding: 'chunked', contentLength: undefined },
  ])('finds a body with Content-Length $length', ({ length, coding, contentLength }) => {
    const body =
      length === undefined ? ['Transfer-Encoding', coding ?? ''] : ['Content-Length', length];
    const parsed = parseRequest(request(['Host', 'a', ...body], { method: 'POST' }));
    expect(parsed).toMatchObject({ hasBody: true, contentLength });
  });

  it('counts the bytes of the first line and the headers', () => {
    const text = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';
    const parsed = parseRequest(request(['Host', 'a']));
    expect('headerBytes' in parsed && parsed.headerBytes).toBeLessThanOrEqual(text.length);
    expect('headerBytes' in parsed && parsed.headerBytes).toBeGreaterThan(text.length - 8);
  });

  const host = ['Host', 'a'];
  it.each<{ headers: string[]; change?: Partial<RawRequest>; status?: number; reason: string }>([
    { headers: [], reason: 'no Host header' },
    { headers: [...host, 'hOST', 'a'], reason: 'more than one Host header' },
    { headers: [...host, ':authority', 'b'], reason: 'more than one host' },
    { headers: host, change: { url: 'http://b/' }, reason: 'more than one host' },
    { headers: ['Host', 'a@b'], reason: 'the host is malformed' },
    { headers: ['Host', ''], reason: 'the host is malformed' },
    { headers: host, change: { url: '*', method: 'OPTIONS' }, reason: 'neither a path nor a URL' },
    { headers: host, change: { url: 'file:///x' }, reason: 'neither a path nor a URL' },
    { headers: host, change: { url: '/a/../b' }, reason: 'segment' },
    {
      headers: [...host, 'Content-Length', '5', 'Transfer-Encoding', 'chunked'],
      reason: 'both Content-Length and Transfer-Encoding',
    },
    {
      headers: [...host, 'Content-Length', '5', 'Content-Length', '5'],
      reason: 'Content-Length is',
    },
    { headers: [...host, 'Content-Length', '5, 5'], reason: 'Content-Length is malformed' },
    { headers: [...host, 'Content-Length', '+5'], reason: 'Content-Length is malformed' },
    { headers: [...host, 'Transfer-Encoding', 'gzip, chunked'], status: 501, reason: 'chunked' },
    { headers: [...host, 'Transfer-Encoding', 'xchunked'], status: 501, reason: 'chunked' },
    {
      headers: [...host, 'transfer-encoding', 'chunked'],
      change: { httpVersionMajor: 2 },
      reason: 'HTTP/2 has no Transfer-Encoding',
    },
    { headers: host, change: { method: 'CONNECT' }, status: 405, reason: 'CONNECT' },
  ])('refuses $headers $change: $reason', ({ headers, change, status = 400, reason }) => {
    const expected = { status, reason: expect.stringContaining(reason) as string };
    expect(parseRequest(request(headers, change))).toEqual(expected);
  });
});

describe('headers', () => {
  const facts: ForwardedFacts = {
    ...{ clientAddress: '10.0.0.9', protocol: 'https', authority: 'a.b:8443', requestId: 'r1' },
    trace: undefined,
  };

  it('for an endpoint say who the client is, whatever the client says', () => {
    const headers = toBackendHeaders(
      [
        ...[
          'Host',
          'a.b',
          'X-Forwarded-For',
          '1.1.1.1',
          'x-forwarded-proto',
          'x',
          'Forwarded',
          'x',
        ],
        ...['X-Real-IP', '1.1.1.1', 'X-Request-Id', 'forged', 'X-Original-URL', '/admin'],
      ],
      facts,
    );
    expect({ ...headers }).toEqual({
      host: 'a.b:8443',
      forwarded: 'for=10.0.0.9;host="a.b:8443";proto=https',
      'x-forwarded-for': '10.0.0.9',
      'x-forwarded-proto': 'https',
      'x-forwarded-host': 'a.b:8443',
      'x-request-id': 'r1',
    });
    expect(toBackendHeaders([], { ...facts, clientAddress: 'fd12::1' }).forwarded).toContain(
      'for="[fd12::1]";',
    );
  });

  it('of a connection stay behind, and so do those that Connection names', () => {
    const raw = [
      ...['Connection', 'close, X-Hop', 'X-Hop', '1', 'Keep-Alive', 'timeout=5', 'Upgrade', 'h2c'],
      ...['Transfer-Encoding', 'chunked', 'TE', 'gzip', 'Proxy-Authorization', 'x', 'X-Kept', '1'],
    ];
    expect(Object.keys(toClientHeaders(raw, 'r1'))).toEqual(['x-kept', 'x-request-id']);
    expect(toBackendHeaders(['TE', 'gzip, trailers'], facts).te).toBe('trailers');
  });

  it('that an endpoint needs cannot be removed by Connection', () => {
    const raw = [
      'Connection',
      'cookie, x-forwarded-for, authorization',
      'Cookie',
      'a',
      'cookie',
      'b',
    ];
    const headers = toBackendHeaders([...raw, 'Authorization', 't'], facts);
    expect(headers).toMatchObject({ cookie: 'a; b', authorization: 't' });
    expect(headers['x-forwarded-for']).toBe('10.0.0.9');
  });

  it('keep all values of a name', () => {
    const raw = ['Set-Cookie', 'a=1', 'set-cookie', 'b=2', '__proto__', 'x'];
    expect(toClientHeaders(raw, 'r1')['set-cookie']).toEqual(['a=1', 'b=2']);
  });

  it.each([
    ['application/grpc', true],
    ['application/grpc+proto', true],
    ['application/grpc-web', false],
    [undefined, false],
  ])('content type %s is gRPC: %s', (type, expected) => expect(isGrpc(type)).toBe(expected));
});

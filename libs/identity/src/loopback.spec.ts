import fc from 'fast-check';
import { checkHostHeader, checkOrigin, isLoopbackHost, requireLoopback } from './index.js';

describe('requireLoopback', () => {
  it.each([
    ['127.0.0.1', '127.0.0.1'],
    ['127.9.8.7', '127.9.8.7'],
    ['::1', '::1'],
    ['[::1]', '::1'],
    ['0:0:0:0:0:0:0:1', '0:0:0:0:0:0:0:1'],
    ['localhost', '127.0.0.1'],
    ['LocalHost', '127.0.0.1'],
  ])('converts the host %s to the bind address %s', (host, bindAddress) => {
    expect(requireLoopback(host)).toBe(bindAddress);
  });

  it.each([
    '0.0.0.0',
    '::',
    '',
    '10.0.0.1',
    '128.0.0.1',
    '[127.0.0.1]',
    'example.com',
    'localhost.example.com',
    '127.0.0.1.example.com',
    '127.1',
    '::1%lo',
  ])('rejects the host %j with precondition', (host) => {
    expect(() => requireLoopback(host)).toThrow(expect.objectContaining({ kind: 'precondition' }));
  });

  it('names the flag and an address to listen on in the error', () => {
    expect(() => requireLoopback('0.0.0.0')).toThrow(
      'refusing to listen on 0.0.0.0 without TLS; use --tls on or listen on 127.0.0.1',
    );
  });
});

describe('isLoopbackHost', () => {
  it('accepts exactly the IPv4 addresses of 127.0.0.0/8', () => {
    fc.assert(
      fc.property(fc.ipV4(), (address) =>
        expect(isLoopbackHost(address)).toBe(address.startsWith('127.')),
      ),
    );
  });
});

describe('checkHostHeader', () => {
  it.each([
    'localhost',
    'localhost:8080',
    'LOCALHOST:1',
    '127.0.0.1',
    '127.0.0.1:65535',
    '[::1]',
    '[::1]:8080',
  ])('allows the host %s', (host) => {
    expect(checkHostHeader(host)).toEqual({ allowed: true });
  });

  it.each([
    undefined,
    '',
    'evil.example',
    'evil.example:8080',
    'localhost.evil.example',
    'localhost@evil.example',
    'evil.example#localhost',
    '::1',
    'localhost:',
    'localhost:x',
    'localhost:65536',
    '[::1',
    '10.0.0.1',
    'localhost, evil.example',
    'localhost:80:80',
  ])('refuses the host %j', (host) => {
    expect(checkHostHeader(host)).toMatchObject({ allowed: false });
  });

  it('allows only hosts that the URL parser of Node.js also reads as loopback hosts', () => {
    const noise = fc.string({ unit: fc.constantFrom(...'az09.:@#/[]?\\%- '), maxLength: 4 });
    const name = fc.constantFrom(
      'localhost',
      'LOCALHOST',
      '127.0.0.1',
      '127.1',
      '[::1]',
      '::1',
      'evil.example',
    );
    const anyHost = fc.tuple(
      fc.oneof(fc.constant(''), noise),
      name,
      fc.oneof(
        fc.constant(''),
        fc.nat(70_000).map((port) => `:${port}`),
        noise,
      ),
    );
    let runs = 0;
    let allowed = 0;
    fc.assert(
      fc.property(anyHost, (parts) => {
        const host = parts.join('');
        runs += 1;
        if (!checkHostHeader(host).allowed) return;
        allowed += 1;
        expect(isLoopbackHost(new URL(`http://${host}/`).hostname)).toBe(true);
      }),
      { numRuns: 2_000 },
    );
    // Fails when the generator makes hardly any permitted host.
    expect(allowed / runs).toBeGreaterThan(0.05);
  });

  it('repeats at most 100 characters of a refused host in the reason', () => {
    const check = checkHostHeader('x'.repeat(10_000));
    expect(check.allowed ? '' : check.reason).toMatch(/^host "x{100}\.\.\."/);
  });
});

describe('checkOrigin', () => {
  it.each([
    undefined,
    'http://localhost',
    'http://localhost:5173',
    'https://localhost:8443',
    'http://127.0.0.1:3000',
    'http://[::1]:3000',
  ])('allows the origin %s', (origin) => {
    expect(checkOrigin(origin)).toEqual({ allowed: true });
  });

  it.each([
    'null',
    '',
    'http://evil.example',
    'http://localhost.evil.example',
    'http://localhost:5173/',
    'http://localhost@evil.example',
    'http://127.1',
    'file://',
    'chrome-extension://abc',
  ])('refuses the origin %j', (origin) => {
    expect(checkOrigin(origin)).toMatchObject({ allowed: false });
  });

  it('allows a listed origin, but not the same host with another port', () => {
    expect(checkOrigin('https://console.example', ['https://console.example'])).toEqual({
      allowed: true,
    });
    expect(checkOrigin('https://console.example:444', ['https://console.example'])).toMatchObject({
      allowed: false,
    });
  });
});

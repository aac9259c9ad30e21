import { Code, type ConnectError } from '@connectrpc/connect';
import { findTrailerError } from '@connectrpc/connect/protocol-grpc';
import fc from 'fast-check';
import { InvalidInputError } from '@cloudless/base';
import { readErrorDetails, toConnectError } from '@cloudless/api';
import { encodeGrpcMessage, setGrpcStatus } from './grpc-status.js';

describe('encodeGrpcMessage', () => {
  it.each([
    { text: 'a: b/c; d, e? "f" #g & h=1 + $2 @x', encoded: 'a: b/c; d, e? "f" #g & h=1 + $2 @x' },
    { text: '100 %', encoded: '100 %25' },
    { text: 'one\ntwo\r\n', encoded: 'one%0Atwo%0D%0A' },
    { text: 'Größe: 1 €', encoded: 'Gr%C3%B6%C3%9Fe: 1 %E2%82%AC' },
    { text: ' spaces at both ends ', encoded: '%20spaces at both ends%20' },
    { text: '\u007f', encoded: '%7F' },
    { text: '', encoded: '' },
  ])('encodes $text as $encoded', ({ text, encoded }) => {
    expect(encodeGrpcMessage(text)).toBe(encoded);
  });

  it('is read by clients that decode with decodeURI and with decodeURIComponent', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        const encoded = encodeGrpcMessage(text);
        expect(encoded).toMatch(/^[ -~]*$/);
        expect(decodeURI(encoded)).toBe(text);
        expect(decodeURIComponent(encoded)).toBe(text);
      }),
    );
  });
});

describe('setGrpcStatus', () => {
  const status = (error: ConnectError): Headers => {
    const trailer = new Headers({ 'retry-after-ms': '5' });
    setGrpcStatus(trailer, error);
    return trailer;
  };

  it('writes code, message and details, and keeps other trailers', () => {
    const trailer = status(
      toConnectError(new InvalidInputError([{ field: 'name', message: 'is required' }])),
    );
    expect([...trailer.keys()].sort()).toEqual([
      'grpc-message',
      'grpc-status',
      'grpc-status-details-bin',
      'retry-after-ms',
    ]);
    const error = findTrailerError(trailer);
    expect(error).toMatchObject({ code: Code.InvalidArgument, rawMessage: 'name: is required' });
    expect(error && readErrorDetails(error)).toMatchObject({
      reason: 'INVALID_INPUT',
      violations: [{ field: 'name', message: 'is required' }],
    });
  });

  it.each([
    { name: 'fifty violations', text: 'is not a name: use letters and digits '.repeat(3) },
    { name: 'messages without ASCII', text: '名'.repeat(400) },
    { name: 'very long messages', text: '名'.repeat(40_000) },
  ])('takes less than 8 KiB for $name, and keeps the reason', ({ text }) => {
    const violations = Array.from({ length: 50 }, (_, index) => ({
      field: `f${index}`,
      message: text,
    }));
    const trailer = status(toConnectError(new InvalidInputError(violations)));
    const size = [...trailer].reduce((sum, [name, value]) => sum + name.length + value.length, 0);
    expect(size).toBeLessThan(8 * 1024 - 200);
    const error = findTrailerError(trailer);
    expect(error?.rawMessage).toMatch(/…$/);
    expect(error && readErrorDetails(error).reason).toBe('INVALID_INPUT');
  });
});

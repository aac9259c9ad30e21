import { describe, expect, it } from '@jest/globals';
import { aRequest } from '../testing/requests.js';
import { fromAnnotations, toAnnotations } from './labels.js';

describe('the annotation of a container', () => {
  const ports = [{ name: 'dns', port: 53, protocol: 'udp', hostPort: 5353 }] as const;
  const empty = {
    name: 'e',
    mountPath: '/e',
    readOnly: false,
    source: { kind: 'emptyDir' },
  } as const;

  it.each([
    { parts: {}, recorded: { labels: { app: 'web' }, ports: [] } },
    { parts: { ports, group: 'r' }, recorded: { labels: { app: 'web' }, ports } },
    {
      parts: { volumes: [empty], group: 'r' },
      recorded: { labels: { app: 'web' }, ports: [], group: 'r' },
    },
    {
      parts: { volumes: [empty] },
      recorded: { labels: { app: 'web' }, ports: [], group: 'ab'.repeat(32) },
    },
    {
      parts: { network: { hostNetwork: true } },
      recorded: { labels: { app: 'web' }, ports: [], hostNetwork: true },
    },
  ])('stores $recorded for a request with $parts', ({ parts, recorded }) => {
    expect(fromAnnotations(toAnnotations(aRequest(parts)))).toEqual(recorded);
  });

  it('stores the process whose network is filtered', () => {
    const filteredSandbox = { pid: 7, startToken: '1234' };
    expect(fromAnnotations(toAnnotations(aRequest(), { filteredSandbox }))).toMatchObject({
      filteredSandbox,
    });
  });

  it.each([
    {
      name: 'of an earlier version',
      text: '{"labels":{"a":"b"},"ports":[{"name":"p","port":1,"protocol":"tcp"}]}',
      labels: { a: 'b' },
    },
    {
      name: 'partly malformed',
      text: '{"labels":{"a":"b"},"ports":[{"name":5},{"name":"p","port":1,"protocol":"tcp"},null]}',
      labels: { a: 'b' },
    },
    { name: 'damaged', text: '{', labels: {} },
    {
      name: 'of another shape',
      text: '{"labels":{"a":1},"ports":{},"group":5,"hostNetwork":"yes","filteredSandbox":{"pid":7}}',
      labels: {},
    },
  ])('is read without an exception when it is $name', ({ text, labels }) => {
    const { ports: readPorts, ...rest } = fromAnnotations({ 'io.cloudless.memory': text });
    expect(rest).toEqual({ labels });
    expect(readPorts.length).toBe(Object.keys(labels).length);
  });
});

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
    { parts: {}, memory: { labels: { app: 'web' }, ports: [] } },
    { parts: { ports, group: 'r' }, memory: { labels: { app: 'web' }, ports } },
    {
      parts: { volumes: [empty], group: 'r' },
      memory: { labels: { app: 'web' }, ports: [], group: 'r' },
    },
    {
      parts: { volumes: [empty] },
      memory: { labels: { app: 'web' }, ports: [], group: 'ab'.repeat(32) },
    },
    {
      parts: { network: { hostNetwork: true } },
      memory: { labels: { app: 'web' }, ports: [], hostNetwork: true },
    },
  ])('stores $parts', ({ parts, memory }) => {
    expect(fromAnnotations(toAnnotations(aRequest(parts)))).toEqual(memory);
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
      text: '{"labels":{"a":1},"ports":{},"group":5,"hostNetwork":"yes"}',
      labels: {},
    },
  ])('can be read when it is $name', ({ text, labels }) => {
    const { ports: found, ...rest } = fromAnnotations({ 'io.cloudless.memory': text });
    expect(rest).toEqual({ labels });
    expect(found.length).toBe(Object.keys(labels).length);
  });
});

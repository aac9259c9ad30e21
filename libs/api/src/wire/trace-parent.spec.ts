import { parseTraceId } from './trace-parent.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';

describe('parseTraceId', () => {
  it.each([
    { name: 'a sampled trace', value: `00-${TRACE}-00f067aa0ba902b7-01`, id: TRACE },
    {
      name: 'a later version with more fields',
      value: `01-${TRACE}-00f067aa0ba902b7-00-more`,
      id: TRACE,
    },
    { name: 'no header', value: undefined, id: '' },
    { name: 'a text that is no traceparent', value: 'hello', id: '' },
    { name: 'a trace id of zeros', value: `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`, id: '' },
    { name: 'a span id of zeros', value: `00-${TRACE}-${'0'.repeat(16)}-01`, id: '' },
    {
      name: 'the version ff, which is not allowed',
      value: `ff-${TRACE}-00f067aa0ba902b7-01`,
      id: '',
    },
  ])('returns "$id" for $name', ({ value, id }) => {
    expect(parseTraceId(new Headers(value === undefined ? {} : { traceparent: value }))).toBe(id);
  });
});

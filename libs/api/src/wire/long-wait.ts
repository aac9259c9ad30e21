import { createContextKey, type ContextKey } from '@connectrpc/connect';

/**
 * Context value of a call: the handler runs this function before it waits for something other than
 * this process, such as the election of a leader. From then on the call does not count among the
 * running calls of its priority, whose number is limited. Undefined without a server, as in the
 * router transport.
 */
export const beginLongWaitKey: ContextKey<(() => void) | undefined> = createContextKey<
  (() => void) | undefined
>(undefined, { description: 'begin of a long wait of the call' });

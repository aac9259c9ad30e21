import { createContextKey, type ContextKey } from '@connectrpc/connect';

/** Bytes before a directly sent message, for the head of its envelope: no copy is necessary. */
export const DIRECT_HEAD_BYTES = 5;

/**
 * Sends messages of a response stream at once, while the client reads as fast as the server sends.
 * A message that the handler of a stream yields passes the generators and promises of every
 * interceptor, which costs more than its encoding.
 */
export interface DirectSender {
  /**
   * Sends one message after all messages that the handler has yielded so far. May only be called
   * while the handler itself waits, so that everything that it has yielded is written: otherwise a
   * message that was yielded and not yet written would come after this one.
   * @param bytes - The message in the binary format, behind {@link DIRECT_HEAD_BYTES} bytes of any
   *   content. The sender keeps and changes the bytes.
   * @returns False when the message was not sent, because the stream has ended or has unread bytes:
   *   the handler has to yield the message, and so waits for the client.
   */
  send(bytes: Uint8Array): boolean;
}

/**
 * Context value of a stream in both directions whose messages may be sent directly. Undefined in
 * all other calls.
 */
export const directSenderKey: ContextKey<DirectSender | undefined> = createContextKey<
  DirectSender | undefined
>(undefined, { description: 'direct sender of the call' });

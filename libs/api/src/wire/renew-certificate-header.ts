/**
 * Header of responses to a user whose certificate was issued by an older generation of the
 * certificate authority: the client should renew the certificate with IssueUserCertificate now, not
 * only at half of its life. The value is `true`.
 */
export const RENEW_CERTIFICATE_HEADER = 'cloudless-renew-certificate';

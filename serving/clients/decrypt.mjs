// Decrypts a message of Web Push (RFC 8291) with http_ece, which is not the code that encrypts it.
//
//   node decrypt.mjs <message> <the browser's private key> <its secret>
//
// All are base64url, and so is what it prints.
import { createECDH } from "node:crypto";
import ece from "http_ece";

const [message, key, authSecret] = process.argv.slice(2).map((text) => Buffer.from(text, "base64url"));
const privateKey = createECDH("prime256v1");
privateKey.setPrivateKey(key);
process.stdout.write(ece.decrypt(message, { version: "aes128gcm", privateKey, authSecret }).toString("base64url"));
